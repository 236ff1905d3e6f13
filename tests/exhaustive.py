"""What `make test` leaves to `make test-matrix`: the same behaviour in another form, and which test stands for it.

Of a test with many parameters, `KEPT` has those that stay, which stand for the others; `LEFT_OUT` has tests that are
left out as a whole, each with one that stands for it. Programs and kinds of programs that are not `quick` are left out
of every test of all of them, too. Where the other test covers a part, `ONLY_THERE` names the rest.
"""

from __future__ import annotations

KEPT: dict[str, dict[str, tuple[str, ...]]] = {
    "tests/analysis/test_against.py": {
        "test_a_correct_program_is_correct_in_every_form": ("Cache",),
    },
    "tests/analysis/test_answer.py": {
        "test_the_name_of_the_last_layer_tells": ("classifier-portable",),
    },
    "tests/analysis/test_culprits.py": {
        "test_of_wrong_outputs_what_was_not_compared_is_named": ("dtype-kinds2",),
    },
    "tests/analysis/test_own_model.py": {
        "test_a_fault_of_the_exported_program_is_found": ("-xnnpack",),
        "test_from_files_and_by_one_argument": ("always",),
        "test_what_a_call_overwrites_in_a_python_object_is_state": ("portable",),
    },
    "tests/browser/test_containers.py": {
        "test_the_view_fills_its_container": ("HBox",),
    },
    "tests/browser/test_graph.py": {
        "test_the_graph_shows_what_the_selected_node_reads": ("light",),
    },
    "tests/browser/test_kernel.py": {
        "test_what_is_on_screen_outlives_the_kernel": ("restarted",),
    },
    "tests/browser/test_report.py": {
        "test_nothing_serious_keeps_anyone_out": ("light",),
    },
    "tests/calls/test_invariants.py": {
        "test_fault_of_the_graph": ("stale-0-after another sequence = alone",),
        "test_padding_that_goes_into_the_cache": ("mask",),
        "test_methods_that_share_their_state": ("False",),
        "test_reset_method": ("True",),
        "test_batch": ("True",),
        "test_cross_attention_cache": ("True",),
    },
    "tests/cli/test_cli.py": {
        "test_a_reader_that_goes_away_is_no_failed_check": ("info {}",),
        "test_outputs_go_through_links_pipes_and_devices": ("report -o", "check --write-baseline"),
    },
    "tests/conformance/test_tap.py": {
        "test_values_are_those_of_the_taps": ("plain_cnn-6",),
    },
    "tests/conformance/test_upstream.py": {
        "test_the_order_in_which_upstream_lowers": ("Parted-shape2-True",),
        "test_the_delegated_graph_as_text": ("counter", "branches"),
    },
    "tests/decoding/test_encoder.py": {},
    "tests/decoding/test_prompt_study.py": {
        "test_rows_are_those_of_decode": ("None",),
        "test_a_folder_continues_a_study": ("None",),
        "test_bad_arguments": ("None",),
    },
    "tests/fuzz/test_mutations.py": {
        "test_one_file": (
            *(
                "pte-branches-pte-bytes",
                "bpte-counter-bpte-bytes",
                "log-counter-log-bytes",
            ),
            *("etrecord-counter-etrecord-archive", "record-poisoned-record-bytes"),
        ),
        "test_everything": (
            *(
                "record-counter-5-archive",
                "record-branches-4-calls",
                "etrecord-poisoned-3-calls",
                "pte-counter-4-bytes",
            ),
            *("etrecord-counter-3-archive", "etdump-counter-3-bytes"),
        ),
        "test_everything_that_is_asked": (
            *("etdump-counter-3-tensors", "record-branches-3-graph", "etrecord-counter-3-members"),
        ),
    },
    "tests/graph/test_derive.py": {
        "test_what_tells_the_outputs_of_a_delegate_apart": ("recurrent-True", "rotary_dynamic_int8-False"),
    },
    "tests/kinds/test_files.py": {
        "test_zoom_from_files_is_that_from_the_record": (
            "delegate_fp32",
            "delegate_int8",
            "dynamic_int8",
            "method_embed",
        ),
        "test_a_debug_buffer_of_another_program_is_noticed": ("pte",),
    },
    "tests/kinds/test_delegate_in_branch.py": {
        "test_without_the_record": ("pte-etrecord",),
    },
    "tests/kinds/test_loops.py": {
        "test_map": ("record",),
        "test_scan": ("pte-etrecord",),
        "test_without_the_record": ("mapped_delegate-pte", "nested-pte-etrecord"),
        "test_explanations": ("mapped", "nested"),
    },
    "tests/language/test_methods.py": {
        "test_every_execution_of_a_sound_program_is_judged": (
            *("prefill and decode-never", "encoder and decoder-always"),
        ),
    },
    "tests/language/test_programs.py": {
        "test_a_wrong_slot_of_a_cache_that_nothing_logs_is_named": ("derived",),
        "test_values_are_compared_and_nothing_is_blamed": (
            *("exact-custom", "derived-custom", "handles-custom", "derived-quantized_cache"),
        ),
        "test_another_length_than_the_examples_is_another_input_and_no_fault": ("1-exact", "6-derived"),
    },
    "tests/language/test_rotations.py": {
        "test_a_fault_of_the_port_is_named_first": ("groups by expand", "groups in another order"),
        "test_another_number_of_dimensions_is_rotated": ("4",),
    },
    "tests/language/test_series.py": {
        "test_a_series_has_the_values_of_its_calls": ("custom", "quantized_cache"),
    },
    "tests/numerics/test_attribution.py": {
        "test_differences_put_in_one_after_the_other_add_up": ("5",),
    },
    "tests/numerics/test_dynamic_grids.py": {
        "test_the_grids_of_rows_in_any_number_of_axes": ("shape2",),
        "test_numbers_on_the_grid_of_the_whole_tensor_are_no_fault_of_one_for_each_row": ("0.0-record", "0.0-ETRecord"),
    },
    "tests/numerics/test_hypotheses.py": {
        "test_a_setting_is_named": ("swapped difference", "axis of a softmax", "rounding mode", "epsilon"),
        "test_a_weight_is_named_by_the_files_and_by_the_values": ("a row", "transposed"),
    },
    "tests/numerics/test_noise.py": {
        "test_errors_of_equal_terms_do_not_cancel_out": ("4096",),
        "test_elements_that_err_together_count_as_one": ("64",),
    },
    "tests/numerics/test_undetermined.py": {
        "test_a_mask_of_inf_beside_a_grid_that_is_chosen_is_judged": ("record", "ETRecord"),
        "test_integers_made_of_inf_that_are_the_references_are_judged": ("record", "ETRecord"),
        "test_nan_that_is_made_inside_and_put_on_a_grid_is_not_judged": ("record",),
    },
    "tests/numerics/test_zoom.py": {
        "test_what_ran_is_taken_where_steps_have_no_handle": ("Normed-xnnpack",),
    },
    "tests/pipeline/test_execute.py": {
        "test_a_crash_while_a_program_runs_keeps_what_was_there": ("9",),
    },
    "tests/pipeline/test_recipe.py": {
        "test_a_name_is_a_recipe": ("xnnpack-int8-backends2-dtypes2",),
    },
    "tests/pipeline/test_worker.py": {
        "test_the_process_ends_with_its_parent": ("-pid-9", "-compute-15", "forked-pid-None", "forked-compute-9"),
    },
    "tests/runner/test_run.py": {
        "test_what_a_runner_starts_in_a_session_of_its_own_ends_too": ("killed",),
    },
    "tests/runner/test_runner.py": {
        "test_values_are_those_of_a_run_from_python": ("digits_int8", "many_outputs"),
    },
    "tests/test_hostile.py": {
        "test_no_member_evaluates_files_of_others_here": ("digits_int8-members1",),
    },
    "tests/test_isolation.py": {
        "test_every_question_has_the_same_answer_and_evaluates_nothing_here": ("digits_int8",),
    },
    "tests/test_snippets.py": {
        "test_a_page_from_top_to_bottom": ("command-line", "why", "emulated"),
    },
    "tests/test_statements.py": {
        "test_no_statement_about_a_kind_contradicts_another": (
            *("delegate_fp32-exact", "delegate_int8-derived", "delegate_int8-handles", "dynamic_int8-exact"),
            *("cond-exact", "method_embed-derived", "half-exact", "nonfinite-exact", "outputs-handles"),
            "different-exact",
        ),
        "test_no_statement_about_a_planted_fault_contradicts_another": (
            "record-pooled_cnn fp32 xnnpack: saturating range",
            "derived-normalised fp32 portable: epsilon of a layer norm",
            "ETRecord-masked_attention fp16 portable: output projection transposed",
        ),
    },
    "tests/test_trainings.py": {
        "test_the_integer_bias_of_a_static_layer_is_compared": ("0.0-first.bias is 0 everywhere", "0.5-first.bias"),
    },
    "tests/test_values_not_caches.py": {
        "test_answers_do_not_depend_on_what_was_asked_or_changed_before": ("1",),
        "test_answers_after_a_zoom_do_not_depend_on_order": ("digits_int8-members1",),
    },
    "tests/zoo/test_found.py": {
        "test_xnnpack_resizes_by_the_ratio_of_the_sizes": ("record",),
        "test_a_number_is_compared_before_it_is_rounded_to_16_bits": ("dtype0",),
    },
    "tests/zoo/test_random_programs.py": {
        "test_a_random_program_is_left_alone": ("fp32",),
        "test_two_faults_are_both_named_and_nothing_else": ("1",),
    },
    "tests/zoo/test_zoo.py": {
        "test_correct_program_is_left_alone": (
            "record-normalised fp32 portable",
            "record-mlp int8 xnnpack",
            "derived-masked_attention fp16 portable",
            "ETRecord-mlp dynamic xnnpack",
        ),
        "test_planted_fault_is_named": (
            "derived-masked_attention fp16 portable: output projection transposed",
            "ETRecord-normalised fp32 portable: epsilon of a layer norm",
        ),
        "test_planted_fault_is_named_and_explained": (
            "normalised fp32 portable: epsilon of a layer norm",
            "mlp int8 xnnpack: channel of a layer \\xd7 0",
        ),
        "test_the_setting_that_the_runtime_computed_with_is_named": ("derived",),
    },
}
"""By file and test, the parameters that `make test` has."""

_REPORT = "tests/browser/test_report.py"
_PANEL = "tests/browser/test_panel.py"

LEFT_OUT: dict[str, dict[str, str]] = {
    "tests/analysis/test_insides.py": {
        "test_small_delegates_without_an_error_are_left_alone": (
            "tests/analysis/test_insides.py::test_nothing_is_begun_if_that_is_not_wanted"
        ),
    },
    "tests/browser/test_harness.py": dict.fromkeys(
        (
            "test_a_cell_that_raises_fails_the_run_with_its_traceback",
            "test_a_click_reaches_the_kernel_and_its_answer_the_page",
            "test_outputs_are_those_of_the_notebook",
            "test_requests_that_leave_the_machine_are_stopped_and_counted",
        ),
        "tests/browser/test_widget.py::test_a_click_on_a_row_asks_for_its_histograms_and_python_knows",
    ),
    "tests/browser/test_keys.py": {
        "test_no_letter_on_a_focused_part_changes_the_notebook": (
            "tests/browser/test_widget.py::test_a_click_on_a_row_asks_for_its_histograms_and_python_knows"
        ),
    },
    "tests/parity/test_port_card.py": {
        "test_a_quantized_row_and_the_card_in_a_view": "tests/parity/test_port_card.py::test_correct_port",
    },
    "tests/test_boundaries.py": {
        "test_identical_operators_are_paired_soon": (
            "tests/artifacts/test_bounded.py::test_many_executions_are_judged_in_linear_time"
        ),
    },
    "tests/view/test_letting_go.py": {
        "test_displayed_loads_end_where_they_began": (
            "tests/view/test_letting_go.py::test_a_view_that_left_the_page_is_closed_with_its_program"
        ),
    },
    "tests/browser/test_kernel.py": {
        "test_a_view_taken_off_the_page_is_released": (
            "tests/browser/test_widget.py::test_the_same_inspection_twice_is_linked"
        ),
        "test_a_notebook_without_its_kernel_shows_the_table": (
            "tests/browser/test_widget.py::test_saved_without_widget_state_a_table_is_left"
        ),
    },
    _PANEL: {
        "test_running_the_cell_again_replaces_the_panel_where_it_is": (
            f"{_PANEL}::test_a_restarted_kernel_leaves_no_dead_panel"
        ),
        "test_it_follows_its_notebook_unless_it_is_pinned": (
            f"{_PANEL}::test_closed_it_is_in_the_cell_again_and_a_button_moves_it_back"
        ),
        "test_a_reload_brings_the_panel_back_once_and_no_closed_one": (
            f"{_PANEL}::test_closed_it_is_in_the_cell_again_and_a_button_moves_it_back"
        ),
        "test_the_list_opens_an_inspection_without_a_cell": (
            f"{_PANEL}::test_shown_in_the_panel_it_is_linked_with_python_and_the_cell_says_where"
        ),
        "test_where_the_extension_is_not_the_cell_shows_the_view_and_a_hint": (
            f"{_PANEL}::test_closed_it_is_in_the_cell_again_and_a_button_moves_it_back"
        ),
    },
    _REPORT: {
        "test_a_narrow_view_has_one_scrollbar_and_its_lists_have_pages": f"{_REPORT}::test_light_and_dark_wide_and_narrow",
        "test_which_output_it_is_stays_legible_and_no_bar_is_below_words": (
            f"{_REPORT}::test_operators_of_long_modules_stay_legible"
        ),
    },
    "tests/browser/test_tokens.py": {
        "test_nothing_serious_keeps_anyone_out": f"{_REPORT}::test_nothing_serious_keeps_anyone_out[light]",
        "test_a_click_opens_a_call_in_a_cell_and_in_the_side_panel": (
            "tests/browser/test_tokens.py::test_keys_go_from_token_to_token_and_its_call_is_shown"
        ),
    },
    "tests/browser/test_widget.py": {
        "test_slices_and_axes_are_chosen": f"{_REPORT}::test_the_map_reads_the_largest_error_and_its_element",
        "test_nothing_serious_keeps_anyone_out": f"{_REPORT}::test_nothing_serious_keeps_anyone_out[light]",
        "test_it_takes_the_theme_of_jupyterlab": f"{_REPORT}::test_light_and_dark_wide_and_narrow",
    },
    "tests/calls/test_invariants.py": {
        "test_language_models": "tests/calls/test_invariants.py::test_correct_decoder",
        "test_correct_ring": "tests/calls/test_invariants.py::test_correct_decoder",
        "test_program_that_accepts_any_position": "tests/calls/test_invariants.py::test_correct_decoder",
    },
    "tests/cli/test_agent.py": {
        "test_an_agent_compares_tokens": "tests/cli/test_agent.py::test_an_agent_finds_the_culprit",
        "test_an_agent_writes_a_bug_report": "tests/cli/test_agent.py::test_an_agent_finds_the_culprit",
    },
    "tests/cli/test_cli.py": {
        "test_the_child_process_starts_before_torch_is_imported": "tests/cli/test_cli.py::test_info_needs_no_torch",
        "test_demo": "tests/test_snippets.py::test_a_page_from_top_to_bottom[command-line]",
    },
    "tests/decoding/test_cache.py": {
        "test_correct_caches_are_explained": (
            "tests/decoding/test_cache.py::test_the_cache_names_layer_position_and_step"
        ),
        "test_a_weak_fault_is_not_outweighed_by_noise": (
            "tests/decoding/test_cache.py::test_a_later_step_is_traced_to_the_entry_and_proved"
        ),
    },
    "tests/decoding/test_encoder.py": {
        "test_stale_cross_attention_cache": ("tests/decoding/test_encoder.py::test_fault_in_the_cross_attention_cache"),
        "test_study_of_word_error_rate": "tests/parity/test_port_card.py::test_word_error_rate",
    },
    "tests/decoding/test_prefill.py": {
        "test_chunks_and_a_tokenizer_file": "tests/decoding/test_prefill.py::test_a_text_in_chunks",
    },
    "tests/decoding/test_steps.py": {
        "test_at_and_why": "tests/decoding/test_cache.py::test_a_later_step_is_traced_to_the_entry_and_proved",
    },
    "tests/evidence/test_executors.py": {
        "test_two_processes_give_what_one_gives": (
            "tests/decoding/test_prompt_study.py::test_rows_are_those_of_decode[None]"
        ),
        "test_dask_does_the_work_of_a_killed_worker_again": (
            "tests/decoding/test_prompt_study.py::test_a_folder_continues_a_study[None]"
        ),
    },
    "tests/evidence/test_study.py": {
        "test_killed_at_every_point_it_loses_only_what_was_under_way": (
            "tests/decoding/test_prompt_study.py::test_a_folder_continues_a_study[None]"
        ),
    },
    "tests/evidence/test_suggestion.py": dict.fromkeys(
        (
            "test_the_divergence_of_scores_is_a_measure",
            "test_culprits_that_only_help_together_are_found_together",
            "test_a_model_that_has_to_stay_in_float_as_a_whole_is_said_to",
        ),
        "tests/evidence/test_suggestion.py::test_the_code_gives_the_numbers_that_are_shown",
    ),
    "tests/evidence/test_versions.py": dict.fromkeys(
        (
            "test_the_table_has_the_versions_that_were_used",
            "test_the_same_executorch_gives_the_same_program_and_numbers_there",
            "test_its_artifacts_are_read_here_like_any_others",
            "test_what_can_not_be_had_is_a_row_with_its_reason",
        ),
        "tests/evidence/test_versions.py::test_a_program_that_the_other_torch_can_not_read_says_what_to_do",
    ),
    "tests/fuzz/test_operators.py": {
        "test_no_arguments_end_the_process": "tests/fuzz/test_operators.py::test_arguments_that_do_not_fit[no statistics]",
        "test_more_tensors_than_memory_holds": (
            "tests/test_isolation.py::test_a_program_of_others_takes_no_more_memory_than_is_free"
        ),
    },
    "tests/language/test_exporters.py": {
        "test_export_llm": (
            "tests/language/test_exporters.py::test_operators_of_the_exporter_are_found_where_only_files_are_loaded"
        ),
    },
    "tests/language/test_libraries.py": {
        "test_a_library_of_the_users": "tests/language/test_libraries.py::test_a_library_that_can_not_be_loaded",
    },
    "tests/language/test_series.py": {
        "test_a_delegate_without_its_grids_is_evaluated_for_all_calls": (
            "tests/language/test_series.py::test_operators_are_evaluated_together"
        ),
    },
    "tests/language/test_methods.py": dict.fromkeys(
        (
            "test_a_picture_and_text_of_other_lengths_than_the_example",
            "test_an_error_of_the_picture_is_followed_into_the_text",
        ),
        "tests/language/test_methods.py::test_an_error_of_the_encoder_is_followed_into_the_decoder",
    ),
    "tests/language/test_programs.py": {
        "test_a_list_of_tuples_holds_the_calls_of_a_model_with_state": (
            "tests/analysis/test_own_model.py::test_what_a_call_overwrites_in_a_python_object_is_state[portable]"
        ),
        "test_the_right_model_finds_a_fault_of_the_exported_one": (
            "tests/analysis/test_own_model.py::test_a_fault_of_the_exported_program_is_found[-xnnpack]"
        ),
        "test_events_may_name_their_namespace": (
            "tests/language/test_programs.py::test_values_are_compared_and_nothing_is_blamed[exact-custom]"
        ),
        "test_packed_weights_are_recognized": ("tests/decoding/test_steps.py::test_noise_explains_a_correct_program"),
        "test_a_float_model_with_a_cache_is_the_reference_of_its_quantized_program": (
            "tests/decoding/test_steps.py::test_the_reference_is_the_model"
        ),
    },
    "tests/numerics/test_earlier.py": {
        "test_random_programs_on_inputs_of_other_sizes_are_left_alone": (
            "tests/zoo/test_random_programs.py::test_a_random_program_is_left_alone[fp32]"
        ),
    },
    "tests/numerics/test_repro.py": {
        "test_a_delegate_alone_prints_the_gap_of_its_row": (
            "tests/numerics/test_repro.py::test_an_operator_inside_a_delegate_can_be_taken_out"
        ),
    },
    "tests/numerics/test_zoom.py": {
        "test_a_zoom_can_be_cancelled_and_has_a_time_limit": (
            "tests/pipeline/test_execute.py::test_interrupting_the_kernel_ends_the_run"
        ),
    },
    "tests/pipeline/test_lower.py": {
        "test_a_second_run_into_the_folder_leaves_an_open_inspection_as_it_was": (
            "tests/artifacts/test_debug_buffer.py::test_a_value_of_a_file_that_changed_is_no_value_that_cannot_be_read[kinds]"
        ),
    },
    "tests/pipeline/test_recipe.py": {
        "test_one_recipe_for_every_question": "tests/pipeline/test_recipe.py::test_a_name_is_a_recipe_of_many_runs",
    },
    "tests/pipeline/test_worker.py": {
        "test_a_zoom_in_an_ascii_locale": (
            "tests/pipeline/test_worker.py::test_a_child_reads_files_as_utf8_in_an_ascii_locale"
        ),
        "test_what_the_child_has_started_ends_with_it": "tests/pipeline/test_worker.py::test_a_process_that_nobody_asks_ends",
    },
    "tests/runner/test_probes.py": dict.fromkeys(
        ("test_release_build_gives_the_values_that_a_debug_buffer_gives", "test_values_inside_of_delegates"),
        "tests/runner/test_probes.py::test_the_output_of_a_folder_is_compared",
    ),
    "tests/runner/test_run.py": {
        "test_runner_without_tracer_gives_the_verdict": (
            "tests/runner/test_probes.py::test_final_outputs_alone_give_the_verdict"
        ),
    },
    "tests/runner/test_runner.py": dict.fromkeys(
        ("test_outputs_only", "test_release_build_has_no_trace_to_give"),
        "tests/runner/test_runner.py::test_values_are_those_of_a_run_from_python[digits_int8]",
    ),
    "tests/test_hostile.py": dict.fromkeys(
        ("test_an_operator_that_ends_the_process", "test_tokens_of_a_program_that_ends_the_process"),
        "tests/test_isolation.py::test_a_watched_child_that_takes_too_much_is_the_answer",
    ),
    "tests/test_notebooks.py": dict.fromkeys(
        ("test_runs", "test_cells_of_the_first_one"), "tests/test_snippets.py::test_a_page_from_top_to_bottom[why]"
    ),
    "tests/test_site.py": {
        "test_the_site_is_whole_and_needs_no_other_host": "tests/test_docs.py::test_every_page_and_picture_is_linked",
    },
    "tests/zoo/test_random_programs.py": {
        "test_a_value_between_two_steps_may_be_rounded_to_either": (
            "tests/numerics/test_noise.py::test_ties_round_to_the_other_step_only_what_is_near_to_the_middle"
        ),
    },
    "tests/zoo/test_zoo.py": dict.fromkeys(
        ("test_correct_program_is_correct", "test_planted_fault_is_one_and_visible"),
        "tests/zoo/test_random_programs.py::test_a_random_program_is_left_alone[fp32]",
    ),
    "tests/test_trainings.py": dict.fromkeys(
        (
            "test_another_zero_point_of_an_activation_is_named",
            "test_a_scale_that_changed_in_the_program_alone_is_named_not_its_bias",
            "test_other_steps_of_a_weight_without_a_bias_are_named",
        ),
        "tests/test_trainings.py::test_other_steps_of_a_weight_are_named_not_the_bias_that_is_counted_in_them",
    ),
    "tests/zoo/test_found.py": {
        "test_portable_layer_norm_far_from_zero": (
            "tests/zoo/test_found.py::test_a_layer_norm_far_from_zero_loses_digits_by_its_formula[record]"
        ),
        "test_xnnpack_has_one_bias_for_a_quantized_layer_that_is_used_twice": (
            "tests/zoo/test_found.py::test_xnnpack_does_not_write_an_int8_output_that_a_clamp_reads"
        ),
        "test_weight_only_int8_on_xnnpack": (
            "tests/zoo/test_found.py::test_xnnpack_computes_the_tanh_gelu_as_the_erf_form"
        ),
    },
}
"""By file and test, the one that stands for all forms of it."""

ONLY_THERE = {
    "tests/browser/test_kernel.py::test_a_view_taken_off_the_page_is_released": "how many views a kernel keeps",
    "tests/browser/test_kernel.py::test_a_notebook_without_its_kernel_shows_the_table": (
        "a notebook that is opened again while its kernel is gone"
    ),
    f"{_PANEL}::test_it_follows_its_notebook_unless_it_is_pinned": "panels of several notebooks",
    f"{_PANEL}::test_a_reload_brings_the_panel_back_once_and_no_closed_one": "panels after a reload of the page",
    f"{_PANEL}::test_the_list_opens_an_inspection_without_a_cell": "the list of inspections in the side panel",
    f"{_PANEL}::test_where_the_extension_is_not_the_cell_shows_the_view_and_a_hint": "JupyterLab without the extension",
    f"{_REPORT}::test_a_narrow_view_has_one_scrollbar_and_its_lists_have_pages": "pages of the lists of a narrow view",
    "tests/browser/test_tokens.py::test_a_click_opens_a_call_in_a_cell_and_in_the_side_panel": (
        "a call that is opened from its token, in JupyterLab"
    ),
    "tests/browser/test_widget.py::test_it_takes_the_theme_of_jupyterlab": "JupyterLab's themes",
    "tests/browser/test_widget.py::test_slices_and_axes_are_chosen": "slices and axes that a kernel is asked for",
    "tests/cli/test_agent.py::test_an_agent_compares_tokens": "tokens that an agent asks for",
    "tests/cli/test_cli.py::test_demo": "`etviz demo`, and the fault that it plants",
    "tests/decoding/test_cache.py::test_correct_caches_are_explained": "quantized caches and rings of a trained model",
    "tests/decoding/test_cache.py::test_a_weak_fault_is_not_outweighed_by_noise": (
        "a fault in the cache of 8da4w whose noise has the larger shares in the margin"
    ),
    "tests/decoding/test_encoder.py::test_study_of_word_error_rate": (
        "a study with the task `wer`: its column, its statistics, the worst input and an input that is opened again"
    ),
    "tests/evidence/test_executors.py::test_two_processes_give_what_one_gives": "the processes of a study",
    "tests/evidence/test_executors.py::test_dask_does_the_work_of_a_killed_worker_again": "Dask",
    "tests/language/test_exporters.py::test_export_llm": (
        "the files of upstream's `export_llama`, which quantizes embeddings: three calls, with and without the record"
    ),
    "tests/fuzz/test_operators.py::test_no_arguments_end_the_process": "random arguments for every operator",
    "tests/language/test_methods.py::test_an_error_of_the_picture_is_followed_into_the_text": (
        "three methods, as of LLaVA, with pictures and texts of other lengths"
    ),
    "tests/language/test_programs.py::test_a_float_model_with_a_cache_is_the_reference_of_its_quantized_program": (
        "quantization of a model with a cache"
    ),
    "tests/language/test_programs.py::test_events_may_name_their_namespace": "the kernel of the delta rule",
    "tests/pipeline/test_recipe.py::test_one_recipe_for_every_question": (
        "calibration data of one recipe in `debug`, `census` and `sweep`"
    ),
    "tests/language/test_libraries.py::test_a_library_of_the_users": "kernels of a user's library, compiled by the test",
    "tests/language/test_series.py::test_a_delegate_without_its_grids_is_evaluated_for_all_calls": (
        "the grids that a delegate chooses, in many calls at once"
    ),
    "tests/evidence/test_study.py::test_killed_at_every_point_it_loses_only_what_was_under_way": (
        "a study that is killed between any two of its steps"
    ),
    "tests/numerics/test_zoom.py::test_a_zoom_can_be_cancelled_and_has_a_time_limit": "a zoom that is cancelled",
    "tests/pipeline/test_lower.py::test_a_second_run_into_the_folder_leaves_an_open_inspection_as_it_was": (
        "`debug` twice into one folder"
    ),
    "tests/runner/test_probes.py::test_release_build_gives_the_values_that_a_debug_buffer_gives": (
        "runners without a tracer: the values of probes, also inside of delegates"
    ),
    "tests/test_hostile.py::test_tokens_of_a_program_that_ends_the_process": "tokens of a program that ends its process",
    "tests/test_hostile.py::test_an_operator_that_ends_the_process": "every question about a program that ends its process",
    "tests/evidence/test_versions.py::test_the_table_has_the_versions_that_were_used": "variants of another environment",
    "tests/numerics/test_earlier.py::test_random_programs_on_inputs_of_other_sizes_are_left_alone": (
        "random programs that are executed on several sizes"
    ),
    "tests/test_site.py::test_the_site_is_whole_and_needs_no_other_host": "the documentation's site",
    "tests/test_notebooks.py::test_runs": "notebooks, and README's snippets",
    "tests/browser/test_keys.py::test_no_letter_on_a_focused_part_changes_the_notebook": (
        "letters that are JupyterLab's keys too, typed on a part of the view"
    ),
    "tests/cli/test_agent.py::test_an_agent_writes_a_bug_report": "a bug report that an agent writes",
    "tests/test_boundaries.py::test_identical_operators_are_paired_soon": "many identical operators",
    "tests/view/test_letting_go.py::test_displayed_loads_end_where_they_began": "the memory of displayed loads",
    "tests/zoo/test_found.py::test_xnnpack_has_one_bias_for_a_quantized_layer_that_is_used_twice": (
        "a layer of XNNPACK's that is used twice"
    ),
    "tests/zoo/test_random_programs.py::test_a_value_between_two_steps_may_be_rounded_to_either": (
        "a program whose value between two steps is followed by a chain of integers"
    ),
}
"""Behaviour that only `make test-matrix` checks, by test; the snippets of further pages are executed there, too."""


def is_left_out(name: str) -> bool:
    """Whether only `make test-matrix` runs a test."""
    file, _, test = name.partition("::")
    test, _, own = test.removesuffix("]").partition("[")
    return test in LEFT_OUT.get(file, {}) or own not in KEPT.get(file, {}).get(test, (own,))
