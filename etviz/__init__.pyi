from etviz import errors as errors
from etviz._version import __version__ as __version__
from etviz.api import compare as compare
from etviz.api import debug as debug
from etviz.api import from_inspector as from_inspector
from etviz.api import load as load
from etviz.comparison.results import Results as Results
from etviz.comparison.results import compare_results as compare_results
from etviz.evidence.census import Census as Census
from etviz.evidence.census import census as census
from etviz.evidence.runner import study as study
from etviz.evidence.study import Study as Study
from etviz.evidence.suggestion import Suggestion as Suggestion
from etviz.evidence.suggestion import suggest as suggest
from etviz.evidence.sweep import Sweep as Sweep
from etviz.evidence.sweep import sweep as sweep
from etviz.gate.bundle import bundle as bundle
from etviz.gate.bundle import verify as verify
from etviz.inspection import Inspection as Inspection
from etviz.pipeline.probe import Probe as Probe
from etviz.pipeline.probe import probe as probe
from etviz.pipeline.record import record as record
from etviz.settings import options as options
from etviz.side_by_side import Comparison as Comparison
from etviz.tensors.metrics import metrics as metrics

__all__: list[str]
