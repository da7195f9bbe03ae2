"""Long tables of cases, of which ``make test`` runs a part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

EVERY: Mapping[str, int] = {
    "api/jobs/test_service_kills.py": 2,
    "api/mistakes/test_mistakes.py": 2,
    "api/python/test_service_client.py": 4,
    "api/service/test_operations.py": 5,
    "benchmarks/test_neighbors.py": 4,
    "datasets/test_transformers_classes.py": 4,
    "distributed/checkpoints/test_checkpoint_families.py": 8,
    "distributed/checkpoints/test_checkpoints.py": 8,
    "distributed/checkpoints/test_hf_weights.py": 5,
    "distributed/encoders/test_encoder_decoders.py": 14,
    "distributed/encoders/test_encoder_lora.py": 9,
    "distributed/encoders/test_encoders.py": 11,
    "distributed/experts/test_expert_chunks.py": 3,
    "distributed/experts/test_expert_lora.py": 24,
    "distributed/experts/test_expert_lowering.py": 12,
    "distributed/experts/test_expert_memory.py": 12,
    "distributed/experts/test_experts.py": 26,
    "distributed/experts/test_gate_lowering.py": 12,
    "distributed/experts/test_gate_parity.py": 29,
    "distributed/launch/test_join.py": 2,
    "distributed/launch/test_watchdog.py": 8,
    "distributed/sequences/test_encoder_sequences.py": 11,
    "distributed/sequences/test_latent_sequences.py": 9,
    "distributed/sequences/test_sequence_bytes.py": 16,
    "distributed/sequences/test_sequence_lowering.py": 13,
    "distributed/sequences/test_sequence_parity.py": 21,
    "distributed/test_cpu_offload.py": 11,
    "distributed/test_heterogeneous_stages.py": 11,
    "distributed/test_live_bytes.py": 24,
    "distributed/test_lora.py": 24,
    "distributed/test_lowering.py": 11,
    "distributed/test_nested_degrees.py": 3,
    "distributed/test_parallel_blocks.py": 4,
    "distributed/test_parity.py": 19,
    "distributed/test_split_loss.py": 3,
    "distributed/test_techniques.py": 2,
    "distributed/test_tp_overlap.py": 3,
    "distributed/test_training.py": 3,
    "distributed/test_user_modules.py": 7,
    "executor/checkpoint/test_far_storage.py": 2,
    "executor/checkpoint/test_session.py": 4,
    "executor/launch/test_fake_ranks.py": 5,
    "executor/models/test_compiled_regions.py": 3,
    "executor/test_dry_run.py": 10,
    "planner/bounds/test_bounds.py": 16,
    "planner/bounds/test_lp_solver.py": 3,
    "planner/bounds/test_peak_bytes.py": 4,
    "planner/bounds/test_pipeline_bounds.py": 8,
    "planner/galvatron/test_galvatron_search.py": 2,
    "planner/heterogeneous/test_search.py": 2,
    "planner/heterogeneous/test_zones.py": 12,
    "planner/oracle/test_chunked_oracle.py": 3,
    "planner/oracle/test_cost_oracle.py": 16,
    "planner/oracle/test_heterogeneous_oracle.py": 24,
    "planner/oracle/test_nested_oracle.py": 8,
    "planner/oracle/test_oracle.py": 24,
    "planner/oracle/test_oracle_checks.py": 2,
    "planner/oracle/test_skewed_load.py": 16,
    "planner/oracle/test_tier_oracle.py": 4,
    "planner/oracle/test_tower_oracle.py": 4,
    "planner/search/test_largest_size.py": 4,
    "planner/search/test_number_refinement.py": 2,
    "planner/search/test_option_table.py": 3,
    "planner/search/test_published_plans.py": 8,
    "planner/search/test_search_progress.py": 2,
    "planner/search/test_smaller_requests.py": 2,
    "planner/search/test_work_limits.py": 8,
    "planner/uniform/test_stack_search.py": 4,
    "planner/what_if/test_what_if_rates.py": 3,
    "techniques/test_cpu_offload.py": 5,
}
"""Of the parametrized cases of these files in ``tests``, ``make test`` runs one in so many."""


LONG: Mapping[str, tuple[str, ...]] = {
    "api/browser/test_browser_docs.py": (
        "test_the_page_of_the_api[320 px]",
        "test_the_page_of_the_api[dark]",
    ),
    "api/browser/test_browser_odd.py": ("test_the_browser_asks_for_the_token",),
    "api/browser/test_browser_tasks.py": (
        "test_a_plan_by_keyboard",
        "test_nobody_is_kept_out[dark]",
    ),
    "api/cli/answers/test_training.py": ("test_the_arithmetic_of_a_training",),
    "api/cli/test_calibrate.py": (
        "test_a_calibration_of_elsewhere_is_not_overwritten",
        "test_validate_scores_only_what_was_not_fitted",
    ),
    "api/cli/test_calibrate_memory.py": (
        "test_peaks_of_several_devices_and_in_another_unit_are_refused",
        "test_validate_of_peaks_scores_only_what_was_not_fitted",
    ),
    "api/cli/test_device_groups.py": (
        "test_a_plan_with_shares_is_simulated_explained_and_shown",
        "test_a_search_over_groups_beats_each_of_them_and_says_so",
    ),
    "api/cli/test_no_code_from_data.py": ("test_serving_unpickles_nothing_and_stays_here",),
    "api/cli/test_plan.py": (
        "test_a_deep_model_is_pinned_whole",
        "test_pins_are_kept",
    ),
    "api/cli/test_process.py": ("test_ctrl_c_at_a_terminal",),
    "api/cli/test_what_if.py": (
        "test_a_handle_keeps_its_stack",
        "test_drawings[svg]",
        "test_infeasible_and_impossible_are_told_and_exit_0",
        "test_python_answers_in_rows",
        "test_the_document_of_a_sweep",
    ),
    "api/jobs/test_no_pickles.py": ("test_a_row_changed_into_a_pickle_runs_no_code",),
    "api/jobs/test_service_jobs.py": ("test_a_job_is_accepted_and_then_done[postgresql]",),
    "api/jobs/test_service_kills.py": (
        "test_a_slot_that_stays_dead_is_taken_over",
        "test_no_acknowledged_job_is_lost_or_doubled",
        "test_stopped_workers_are_replaced_and_jobs_that_nobody_began_are_done",
    ),
    "api/jobs/test_service_profiles.py": (
        "test_a_job_keeps_the_profile_that_it_was_accepted_with",
        "test_profiles_are_counted_and_of_one_place_a_name",
        "test_timed_kernels_refit_prices_of_a_device",
    ),
    "api/jobs/test_service_restart.py": ("test_a_watched_job_goes_on_after_a_restart",),
    "api/mistakes/test_mistakes.py": (
        "test_mistake[70 B parameters on one device]",
        "test_mistake[a cap that is too low names the one that fits]",
        "test_mistake[device memory capped to nothing]",
        "test_mistake[pin of what cannot run, to be run]",
    ),
    "api/python/test_notebook_handles.py": (
        "test_an_alternative_is_one_line",
        "test_every_picture_is_drawn_and_says_what_it_is_of",
    ),
    "api/python/test_service_client.py": (
        "test_a_search_is_the_same_search",
        "test_a_stored_answer_is_read_to_the_last_digit",
        "test_a_token_is_asked_for",
        "test_jobs_go_on_without_their_client",
    ),
    "api/service/test_operations.py": (
        "test_the_model_does_not_tell_plans_that_tie_apart",
        "test_the_smallest_memory_is_less_than_the_plan_that_came_nearest",
        "test_the_terminal_says_what_it_costs_and_what_ties",
    ),
    "api/service/test_scratch_folder.py": ("test_nothing_is_left_of_a_service_that_was_ended",),
    "api/service/test_service.py": (
        "test_a_plan_for_cost_is_that_of_the_command",
        "test_a_sweep_over_http_is_that_of_the_command",
        "test_children_do_not_outlive_a_killed_service",
        "test_ctrl_c_answers_what_waits_and_leaves_no_child",
        "test_tokens_over_http",
    ),
    "api/service/test_service_corpus.py": ("test_a_thousand_hostile_requests",),
    "api/service/test_service_explain.py": ("test_what_a_search_says_adds_up_too[pipeline]",),
    "api/service/test_service_generated.py": ("test_a_generated_client_finds_a_plan",),
    "api/service/test_service_logs.py": ("test_a_request_and_its_job_are_logged_under_one_id",),
    "api/size/test_size.py": ("test_the_command_says_what_python_says",),
    "benchmarks/test_gpu_report.py": (
        "test_a_killed_process_leaves_its_rows",
        "test_what_cannot_be_measured_is_one_line",
    ),
    "benchmarks/test_neighbors.py": (
        "test_a_proof_of_nothing_would_be_seen",
        "test_nothing_beside_the_best_plans_of_a_real_mixed_question_is_below_the_bound",
    ),
    "costmodel/calibration/test_fitting.py": (
        "test_products_of_presets_come_with_their_gradients",
    ),
    "costmodel/programs/test_fitting_programs.py": (
        "test_training_in_a_child_gives_equal_arrays_and_learns",
    ),
    "costmodel/simulation/test_event_simulation.py": (
        "test_spans_of_split_backwards_take_as_long_as_passes",
    ),
    "costmodel/simulation/test_split_backward_schedules.py": (
        "test_a_second_simulation_agrees",
        "test_longer_work_never_shortens_the_step",
    ),
    "datasets/recipes/test_conformance.py": (
        "TestWindows::test_every_token_is_kept_cut_or_dropped_by_name",
        "TestWindows::test_same_bytes_whatever_order_shards_and_processes",
        "TestWindows::test_stopped_anywhere_it_goes_on_to_the_same_bytes",
    ),
    "distributed/checkpoints/test_checkpoint_families.py": (
        "test_a_resumed_run_is_verified",
        "test_a_run_goes_on_under_its_plan_and_others",
    ),
    "distributed/checkpoints/test_checkpoints.py": (
        "test_a_killed_run_loses_no_more_than_an_interval",
    ),
    "distributed/checkpoints/test_hf_weights.py": ("test_a_saved_folder_generates_text",),
    "distributed/checkpoints/test_restart.py": ("test_a_restarted_run_goes_on_by_itself",),
    "distributed/experts/test_routing_trace.py": (
        "test_a_trace_is_the_same_for_every_split_and_comes_back",
    ),
    "distributed/launch/test_join.py": ("test_a_rank_that_nobody_started_is_named",),
    "distributed/launch/test_several_nodes.py": ("test_two_nodes_over_loopback",),
    "distributed/launch/test_signals.py": (
        "test_a_stopped_run_is_saved_and_says_how_to_go_on",
        "test_a_suspended_run_goes_on",
        "test_ranks_under_torchrun_stop_together",
        "test_without_a_checkpoint_nothing_is_saved_and_that_is_said",
    ),
    "distributed/launch/test_watchdog.py": (
        "test_a_mistake_that_only_a_rank_can_find_keeps_its_exit_code",
        "test_a_rank_killed_in_the_middle_of_training",
        "test_an_interrupt_ends_the_ranks_and_is_passed_on",
        "test_output_of_ranks_does_not_disturb_the_channel",
        "test_ranks_end_with_a_launcher_that_is_killed",
    ),
    "distributed/test_address_plan.py": (
        "TestAddressPlan::test_a_run_is_the_reference[0]",
        "TestAddressPlan::test_what_is_priced_is_what_runs",
    ),
    "distributed/test_cpu_offload.py": ("test_checkpoints_go_on_with_and_without_it",),
    "distributed/test_live_bytes.py": ("test_nothing_is_left_from_step_to_step",),
    "distributed/test_training.py": (
        "test_a_cosine_learning_rate_takes_the_reference_along",
        "test_losses_fall_on_real_text_in_bf16",
    ),
    "distributed/test_user_modules.py": ("test_the_lines_of_the_docs_run_as_they_stand",),
    "docs/test_doc_blocks.py": (
        "test_blocks_print_what_they_show[docs/multi_node.md-0]",
        "test_blocks_print_what_they_show[docs/python.md-3-4]",
        "test_what_asks_a_service_works_word_for_word",
    ),
    "executor/checkpoint/test_copies_beside.py": ("test_a_run_saves_the_same_either_way[False]",),
    "executor/checkpoint/test_far_storage.py": ("test_a_run_goes_on_from_a_url",),
    "executor/checkpoint/test_new_stage.py": (
        "test_moments_are_kept_bit_for_bit",
        "test_the_first_loss_is_that_of_the_weights",
    ),
    "executor/checkpoint/test_session.py": (
        "test_lion_is_run_verified_and_resumed",
        "test_techniques_that_come_and_go",
        "test_times_and_bytes_are_reported_beside_the_price",
        "test_verification_finds_the_checkpoint_that_it_starts_from",
        "test_what_techniques_keep_is_kept",
    ),
    "executor/test_addresses.py": (
        "test_a_dry_run_gives_rehearsed_addresses_until_there_are_recorded_ones",
        "test_requests_of_passes_are_the_bytes_beyond_those_that_stay",
    ),
    "executor/test_dry_run.py": (
        "test_as_a_command_it_reads_a_plan_and_writes_json",
        "test_as_a_command_it_refuses_in_one_line",
        "test_the_peak_of_a_large_model_is_the_predicted_one",
    ),
    "notebooks/test_notebooks.py": ("test_a_notebook_shows_what_it_is_committed_with[execute]",),
    "planner/bounds/test_bounds.py": ("test_no_bound_is_above_a_random_plan_of_a_real_model",),
    "planner/bounds/test_pipeline_bounds.py": ("test_large_spaces_have_a_small_gap",),
    "planner/heterogeneous/test_search.py": ("test_never_worse_than_equal_stages",),
    "planner/heterogeneous/test_zones.py": ("test_a_pipeline_crosses_slow_links_once",),
    "planner/oracle/test_oracle_checks.py": (
        "test_a_wrong_planner_would_be_seen",
        "test_nothing_fits_is_said",
    ),
    "planner/pins/test_pinned_compile.py": ("test_a_pinned_graph_takes_blocks_of_one_rank",),
    "planner/search/test_intensification.py": (
        "test_host_memory_is_no_stage_that_may_hold_more",
        "test_what_other_shapes_gave_hides_no_better_one",
    ),
    "planner/search/test_largest_size.py": (
        "test_more_memory_never_lowers_the_largest",
        "test_the_longest_sequence_is_that_of_the_brute_force",
    ),
    "planner/search/test_local_search.py": ("test_no_change_of_one_layer_is_faster_where_it_ends",),
    "planner/search/test_more_memory.py": (
        "test_two_layers_that_are_alike_may_change_unlike",
        "test_what_estimates_put_behind_is_found_with_more_memory_too",
    ),
    "planner/search/test_published_plans.py": ("test_groups_are_those_that_validate_ranks",),
    "planner/search/test_search_progress.py": ("test_every_glimpse_is_legal_and_sound",),
    "planner/search/test_tied_embeddings.py": ("test_one_stage_is_among_the_likely_plans",),
    "planner/search/test_work_limits.py": (
        "test_more_memory_is_asked_at_the_same_prices",
        "test_plans_that_tie_are_hashed_once",
        "test_where_layers_have_many_options_a_wider_proof_is_enough",
    ),
    "planner/solve/test_answers.py": (
        "test_a_full_memory_is_fragile",
        "test_an_odd_batch_gets_advice",
        "test_nothing_is_lost_where_the_simplest_is_the_best",
    ),
    "planner/uniform/test_stack_search.py": (
        "test_the_best_plan_of_a_stack_is_found_and_proven[megatron]",
    ),
    "planner/what_if/test_what_if.py": (
        "test_a_batch_of_another_size_makes_other_micro_batches",
        "test_added_devices_of_the_same_kind_grow_dp",
        "test_nothing_moves_where_nothing_changes",
        "test_re_planning_never_loses",
        "test_the_best_plan_is_kept",
        "test_what_does_not_fit_is_priced_and_named",
    ),
    "planner/what_if/test_what_if_rates.py": ("test_no_plan_beats_the_bound_under_changed_rates",),
    "techniques/test_activation_swap.py": (
        "TestActivationSwap::test_pins_choose_it",
        "TestActivationSwap::test_the_hosts_bytes_decide",
        "TestActivationSwap::test_the_planner_equals_the_brute_force",
    ),
    "techniques/test_cpu_offload.py": (
        "TestCpuOffload::test_memory_decides",
        "TestCpuOffload::test_the_planner_equals_the_brute_force",
    ),
    "techniques/test_expert_pipelining.py": (
        "TestExpertPipelining::test_the_planner_equals_the_brute_force",
    ),
    "techniques/test_quantized_communication.py": (
        "TestQuantizedCommunication::test_the_planner_equals_the_brute_force",
    ),
    "techniques/test_toys.py": (
        "TestGradientCensus::test_memory_decides_between_the_modes",
        "TestParkedOutputs::test_the_planner_equals_the_brute_force",
    ),
    "techniques/test_tp_overlap.py": (
        "TestTensorParallelOverlap::test_the_planner_equals_the_brute_force",
    ),
}
"""By file, long tests (six seconds, of ranks fifteen or so) that only ``make evidence`` runs.

Most have a shorter neighbor in ``make test``. A name with brackets is one case of its test.
"""


def table_name(path: Path) -> str:
    """A test file as :data:`EVERY` names it."""
    return path.as_posix().rpartition("/tests/")[2]


def is_long(item: pytest.Item) -> bool:
    """Whether :data:`LONG` names a test, or this case of it."""
    case, tests = item.nodeid.partition("::")[2], LONG.get(table_name(item.path), ())
    return case in tests or case.partition("[")[0] in tests


def sample(items: Sequence[pytest.Item]) -> None:
    """Give long tests, and most cases of the long tables, to the evidence tier."""
    seen: Counter[str] = Counter()
    for item in items:
        name = table_name(item.path)
        if is_long(item):
            item.add_marker(pytest.mark.evidence)
        if name in EVERY and hasattr(item, "callspec"):
            if seen[name] % EVERY[name]:
                item.add_marker(pytest.mark.evidence)
            seen[name] += 1
