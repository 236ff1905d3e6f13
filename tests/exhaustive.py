"""What `make test` leaves to `make test-matrix`: the same behaviour in another form, and which test stands for it.

By file and test: the parameters that are left out, each with those that stand for them; or, of a test that is left out
as a whole, another one. Kinds of programs that are not `quick` are left out of every test of kinds, too. Where the other
test covers a part, `ONLY_THERE` names the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

LEFT_OUT: dict[str, dict[str, dict[str, str] | str]] = {
    "tests/analysis/test_against.py": {
        "test_a_correct_program_is_correct_in_every_form": {"Attention": "Cache"},
    },
    "tests/analysis/test_answer.py": {
        "test_the_name_of_the_last_layer_tells": {"classifier-xnnpack-int8": "output_layer-xnnpack-int8"},
    },
    "tests/analysis/test_own_model.py": {
        "test_a_fault_of_the_exported_program_is_found": {
            "-portable": "-xnnpack",
            "scale-xnnpack": "scale-portable",
            "activation-xnnpack": "scale-portable",
            "one fewer-xnnpack": "one more-xnnpack",
            "axis-xnnpack": "axis-portable",
            "one more-portable": "one more-xnnpack",
            "no cap-portable": "no cap-xnnpack",
            "activation-portable": "scale-portable",
            "one fewer-portable": "one more-xnnpack",
        },
        "test_from_files_and_by_one_argument": {"never": "always"},
    },
    "tests/browser/test_containers.py": {
        "test_the_view_fills_its_container": {"Tab": "HBox", "GridBox": "HBox"},
    },
    "tests/browser/test_graph.py": {
        "test_the_graph_shows_what_the_selected_node_reads": {"dark": "light"},
    },
    "tests/browser/test_kernel.py": {
        "test_what_is_on_screen_outlives_the_kernel": {"gone": "restarted"},
    },
    "tests/browser/test_report.py": {
        "test_nothing_serious_keeps_anyone_out": {"dark": "light"},
    },
    "tests/browser/test_tokens.py": {
        "test_nothing_serious_keeps_anyone_out": {"dark": "light"},
    },
    "tests/calls/test_invariants.py": {
        "test_language_models": {
            "custom_portable": "quantized_cache",
            "ring_bf16": "quantized_cache",
            "sink_8da4w": "quantized_cache",
            "gated_delta": "quantized_cache",
        },
        "test_fault_of_the_graph": {
            "mask-0-chunks = token by token": "tests/calls/test_invariants.py::test_padding_that_goes_into_the_cache[mask]",
            "short ring-3-chunks = token by token": "ring start-3-chunks = token by token",
        },
        "test_methods_that_share_their_state": {"True": "False"},
        "test_reset_method": {"False": "True"},
        "test_batch": {"False": "True"},
        "test_cross_attention_cache": {"False": "True"},
    },
    "tests/cli/test_cli.py": {
        "test_a_reader_that_goes_away_is_no_failed_check": {
            "gaps {} --json": "report {} -o /dev/stdout",
            "check {} --junit /dev/stdout": "report {} -o /dev/stdout",
        },
    },
    "tests/conformance/test_tap.py": {
        "test_values_are_those_of_the_taps": {"encoder-15": "plain_cnn-6"},
    },
    "tests/conformance/test_upstream.py": {
        "test_the_order_in_which_upstream_lowers": {
            "Recurrent-shape3-False": "Parted-shape2-True",
            "Encoder-shape4-True": "Parted-shape2-True",
        },
    },
    "tests/decoding/test_cache.py": {
        "test_a_weak_fault_is_not_outweighed_by_noise": {"2": "16"},
        "test_correct_caches_are_explained": {"quantized_cache": "plain", "ring": "plain"},
    },
    "tests/decoding/test_encoder.py": {
        "test_study_of_word_error_rate": "tests/parity/test_port_card.py::test_word_error_rate",
    },
    "tests/decoding/test_prefill.py": {
        "test_chunks_and_a_tokenizer_file": "tests/decoding/test_prefill.py::test_a_text_in_chunks",
    },
    "tests/decoding/test_prompt_study.py": {
        "test_rows_are_those_of_decode": {"2": "1"},
        "test_a_folder_continues_a_study": {"2": "1"},
        "test_bad_arguments": {"2": "1"},
    },
    "tests/fuzz/test_operators.py": {
        "test_more_tensors_than_memory_holds": "tests/test_isolation.py::test_a_program_of_others_takes_no_more_memory_than_is_free",
    },
    "tests/graph/test_derive.py": {
        "test_what_tells_the_outputs_of_a_delegate_apart": {"bidirectional-False": "rotary_dynamic_int8-False"},
    },
    "tests/kinds/test_files.py": {
        "test_zoom_from_files_is_that_from_the_record": {
            "channels_last": "delegate_fp32",
            "several": "delegate_fp32",
            "nonfinite": "delegate_fp32",
            "outputs": "delegate_fp32",
            "cond_diverging": "cond",
            "weight_only_torchao": "dynamic_int8",
            "decoder_portable": "decoder",
        },
    },
    "tests/language/test_exporters.py": {
        "test_export_llm": "tests/language/test_exporters.py::test_operators_of_the_exporter_are_found_where_only_files_are_loaded",
    },
    "tests/language/test_methods.py": {
        "test_every_execution_of_a_sound_program_is_judged": {
            "encoder and decoder-never": "encoder and decoder-always",
        },
    },
    "tests/language/test_programs.py": {
        "test_the_right_model_finds_a_fault_of_the_exported_one": "tests/analysis/test_own_model.py::test_a_fault_of_the_exported_program_is_found[-xnnpack]",
        "test_a_wrong_slot_of_a_cache_that_nothing_logs_is_named": {"exact": "derived"},
    },
    "tests/language/test_series.py": {
        "test_a_series_has_the_values_of_its_calls": {"plain_bf16": "plain", "sink": "ring"},
    },
    "tests/numerics/test_dynamic_grids.py": {
        "test_the_grids_of_rows_in_any_number_of_axes": {"shape0": "shape2", "shape1": "shape2"},
        "test_numbers_on_the_grid_of_the_whole_tensor_are_no_fault_of_one_for_each_row": {
            "1e-05-record": "0.0-record",
            "1e-05-ETRecord": "0.0-ETRecord",
        },
    },
    "tests/numerics/test_hypotheses.py": {
        "test_a_setting_is_named": {
            "swapped division": "swapped difference",
            "axis of a mean": "axis of a softmax",
            "trunc for floor": "rounding mode",
            "start of a slice": "index of a select",
            "order of a permute": "order of a cat",
        },
        "test_a_weight_is_named_by_the_files_and_by_the_values": {
            "a column": "a row",
            "rolled columns": "rolled",
            "reversed": "two rows",
        },
    },
    "tests/numerics/test_undetermined.py": {
        "test_a_mask_of_inf_beside_a_grid_that_is_chosen_is_judged": {"derived": "record"},
        "test_integers_made_of_inf_that_are_the_references_are_judged": {"derived": "record"},
        "test_nan_that_is_made_inside_and_put_on_a_grid_is_not_judged": {"derived": "record"},
    },
    "tests/parity/test_port_card.py": {
        "test_a_quantized_row_and_the_card_in_a_view": {"False": "True"},
    },
    "tests/pipeline/test_recipe.py": {
        "test_one_recipe_for_every_question": "tests/pipeline/test_recipe.py::test_a_name_is_a_recipe_of_many_runs",
        "test_a_name_is_a_recipe": {
            "portable-backends0-dtypes0": "xnnpack-int8-backends2-dtypes2",
            "xnnpack-backends1-dtypes1": "xnnpack-int8-backends2-dtypes2",
        },
    },
    "tests/test_hostile.py": {
        "test_an_operator_that_ends_the_process": {
            "lowered graph": "edge program",
            "float model": "edge program",
            "exported program": "edge program",
        },
        "test_no_member_evaluates_files_of_others_here": {"encoder-members0": "digits_int8-members1"},
    },
    "tests/test_isolation.py": {
        "test_every_question_has_the_same_answer_and_evaluates_nothing_here": {
            "counter": "digits_int8",
            "branches": "digits_int8",
        },
    },
    "tests/test_notebooks.py": {
        "test_runs": {
            "03-why": "01-first-look",
            "04-many-runs": "01-first-look",
            "05-language-model": "01-first-look",
            "upstream-1-python": "01-first-look",
            "upstream-2-runner": "01-first-look",
        },
    },
    "tests/test_snippets.py": {
        "test_a_page_from_top_to_bottom": {
            "evidence": "tests/test_docs.py::test_snippets_call_what_is_there[evidence]",
            "language-models": "tests/test_docs.py::test_snippets_call_what_is_there[language-models]",
            "getting-started": "tests/test_docs.py::test_snippets_call_what_is_there[getting-started]",
            "quantization": "tests/test_docs.py::test_snippets_call_what_is_there[quantization]",
            "from-artifacts": "tests/test_docs.py::test_snippets_call_what_is_there[from-artifacts]",
            "decode": "tests/test_docs.py::test_snippets_call_what_is_there[decode]",
            "devices": "tests/test_docs.py::test_snippets_call_what_is_there[devices]",
            "parity": "tests/test_docs.py::test_snippets_call_what_is_there[parity]",
        },
    },
    "tests/test_statements.py": {
        "test_no_statement_about_a_kind_contradicts_another": {
            "delegate_fp32-derived": "delegate_fp32-exact",
            "several-derived": "several-exact",
            "channels_last-derived": "channels_last-exact",
            "masked_transformer-derived": "masked_transformer-exact",
            "dynamic_int8-derived": "dynamic_int8-exact",
            "weight_only_torchao-derived": "weight_only_torchao-exact",
            "decoder_portable-derived": "decoder_portable-exact",
            "cond_diverging-derived": "cond_diverging-exact",
            "method_forward-derived": "method_forward-exact",
            "nonfinite-derived": "nonfinite-exact",
            "outputs-derived": "outputs-exact",
            "same_twice-derived": "same_twice-exact",
            "different-derived": "different-exact",
            "nan_twice-derived": "nan_twice-exact",
            "half_beside_float-derived": "half_beside_float-exact",
        },
    },
    "tests/test_trainings.py": {
        "test_the_integer_bias_of_a_static_layer_is_compared": {"1.0-": "0.5-first.bias"},
    },
    "tests/test_values_not_caches.py": {
        "test_answers_do_not_depend_on_what_was_asked_or_changed_before": {"-1": "1"},
        "test_answers_after_a_zoom_do_not_depend_on_order": {"encoder-members0": "digits_int8-members1"},
    },
    "tests/vendors/test_emulated.py": {
        "test_a_correct_program_has_no_culprit": {"tosa-residual": "tosa-cnn", "tosa-int8-residual": "tosa-int8-cnn"},
        "test_every_operator_inside_is_compared": {"tosa-residual": "tosa-cnn", "tosa-int8-residual": "tosa-int8-cnn"},
        "test_ethos_u_is_opened_by_the_graph_in_the_record": {"ethos-u85": "ethos-u55"},
        "test_a_sweep_compares_vendors": "tests/evidence/test_suggestion.py::test_sweep_puts_variants_side_by_side",
    },
    "tests/zoo/test_found.py": {
        "test_xnnpack_resizes_by_the_ratio_of_the_sizes": {"derived": "record"},
    },
    "tests/zoo/test_random_programs.py": {
        "test_a_random_program_is_left_alone": {"fp16": "bf16", "int8-tensor": "int8"},
        "test_two_faults_are_both_named_and_nothing_else": {"6": "1"},
    },
}

ONLY_THERE = {
    "tests/decoding/test_encoder.py::test_study_of_word_error_rate": (
        "a study with the task `wer`: its column, its statistics, the worst input and an input that is opened again"
    ),
    "tests/language/test_exporters.py::test_export_llm": (
        "the files of upstream's `export_llama`, which quantizes embeddings: three calls, with and without the record"
    ),
    "tests/pipeline/test_recipe.py::test_one_recipe_for_every_question": (
        "calibration data of one recipe in `debug`, `census` and `sweep`"
    ),
    "tests/test_snippets.py::test_a_page_from_top_to_bottom": (
        "the snippets of eight pages run; in `make test` their calls and arguments are those of the signatures"
    ),
    "tests/vendors/test_emulated.py::test_a_sweep_compares_vendors": "a sweep whose variants are emulated",
}
"""Behaviour that only `make test-matrix` checks, by test."""


def stands_for() -> Iterator[tuple[str, str]]:
    """Each test that is left out, and the one that stands for it."""
    for file, tests in LEFT_OUT.items():
        for test, left in tests.items():
            if isinstance(left, str):
                yield f"{file}::{test}", left
                continue
            for own, other in left.items():
                yield f"{file}::{test}[{own}]", other if "::" in other else f"{file}::{test}[{other}]"


MATRIX = dict(stands_for())
