"""Why a value is off: shares of the error, stages of the program, zooms, what-ifs."""
