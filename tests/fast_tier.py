"""What `scripts/test --fast` leaves out: whatever takes long or starts many processes. All else is in it, new tests included.

Entries are folders, files, or functions of files (FILE::FUNCTION, with all their parameters). Times behind them are those of one run in
one process. tests/unit/test_fast_tier.py checks that every entry names something and that every package keeps tests.
"""

from __future__ import annotations

LEFT_OUT = (
    "tests/browser",  # 15 s, a browser
    "tests/fuzz",  # 60 s
    "tests/live",  # 20 s, a real Slurm
    "tests/unit/serve/test_service.py",  # 40 s, starts services
    "tests/learning",  # 15 s and more: learners learn
    "tests/unit/search/test_learning.py",  # 25 s
    "tests/contract/test_env_tools.py::test_gymnasium_accepts_every_id_without_a_warning",  # 50 s
    "tests/contract/test_env_tools.py::test_gymnasium_accepts_every_preset",  # 20 s
    "tests/contract/test_env_tools.py::test_ids_with_the_package_work_after_any_order_of_imports",
    # The engine's features meet the reference uncompiled in tests/unit/sim; compiled, some of it does here.
    "tests/differential/test_elastic.py",
    "tests/differential/test_conservative_plans.py",
    "tests/differential/test_engine_vs_reference.py::test_processor_logs",  # 20 s
    "tests/differential/test_engine_vs_reference.py::test_every_combination_on_fixed_workloads",  # 15 s
    "tests/differential/test_engine_vs_reference.py::test_long_queues_of_gangs",  # 14 s
    "tests/differential/test_engine_vs_reference.py::test_backlogs_under_conservative_backfill",
    "tests/differential/test_fairness.py::test_a_log_with_users_and_groups",  # 28 s
    "tests/differential/test_head_dispatch.py",  # 20 s
    "tests/differential/test_lasting_plans.py",
    "tests/differential/test_models.py",  # 50 s
    "tests/differential/test_outages.py",  # 50 s
    "tests/differential/test_overdue.py",
    "tests/differential/test_own_holds.py",
    "tests/differential/test_own_placement.py",
    "tests/differential/test_own_uncompiled.py",  # 50 s: every example of a policy is compiled
    "tests/differential/test_partitions.py",
    "tests/differential/test_power_cap.py",
    "tests/differential/test_preemption.py",  # 35 s
    "tests/differential/test_reservations.py",  # 20 s
    "tests/differential/test_resizing.py",
    "tests/differential/test_sleeping.py",  # 18 s
    "tests/differential/test_slurm_loops.py::test_long_queues",
    "tests/differential/test_uncompiled.py",  # 9 s
    "tests/golden/test_rlscheduler_tables.py",
    "tests/golden/test_whole_logs.py",
    "tests/property/test_deciders.py",
    "tests/property/test_determinism.py",  # 35 s
    "tests/property/test_kept_reservations.py::test_first_reservations_are_kept_on_a_piece_of_a_log",
    "tests/property/test_snapshots.py",
    "tests/property/test_episodes.py::test_the_vector_env_plays_what_single_envs_play",
    "tests/unit/agents/test_curves.py",
    "tests/unit/agents/test_d3qn.py::test_resuming_goes_on_to_the_bit",
    "tests/unit/agents/test_head_training.py",  # 40 s: trains, and replays all heuristics
    "tests/unit/agents/test_ppo.py::test_resuming_goes_on_to_the_bit",
    "tests/unit/agents/test_sac.py::test_resuming_goes_on_to_the_bit",
    "tests/unit/agents/test_training_envs.py::test_a_heuristic_can_be_imitated",
    "tests/unit/agents/test_training.py",  # 50 s: whole runs
    "tests/contract/test_sb3_batch.py::test_maskable_ppo_learns_on_a_batch",  # torch
    "tests/install",  # builds and installs
    "tests/unit/api/test_calls.py::test_a_function_can_be_combined_with_backfill_by_its_name",  # functions are compiled
    "tests/unit/api/test_calls.py::test_the_notebook_runs",
    "tests/unit/cli/test_fitting_tables.py::test_results_of_commands_fit_80_columns",
    "tests/unit/cli/test_what_if.py",
    "tests/unit/cli/test_bench_command.py",  # 11 s
    "tests/unit/cli/test_command_line.py::test_help_of_every_command_works_and_imports_nothing_heavy",
    "tests/unit/cli/test_failing_writes.py",
    "tests/unit/cli/test_interrupts.py",  # processes, and a training
    "tests/unit/cli/test_new_policy_command.py::test_what_it_writes_passes_its_own_test",
    "tests/unit/cli/test_printed_commands.py",  # 20 s
    "tests/unit/envs/test_autoreset.py",
    "tests/unit/envs/test_step_threads.py",  # 8 s
    "tests/unit/envs/test_envs_uncompiled.py",
    "tests/unit/envs/test_published.py::test_gpu_optimizer",
    "tests/unit/envs/test_rewards.py::test_sums_over_an_episode_are_the_metrics",  # 12 s
    "tests/unit/envs/test_rewards.py::test_terms_that_count_jobs_count_each_once_where_some_fail",
    "tests/unit/evaluation/test_many.py",
    "tests/unit/policies/test_bounds_on_waiting.py::test_waits_on_a_log_stay_near_the_bound",
    "tests/unit/policies/test_following.py",  # 35 s
    "tests/unit/policies/test_holds.py",  # 12 s: every function is compiled
    "tests/unit/policies/test_layers.py::test_the_interpreter_decides_alike_without_the_compiler",  # 25 s
    "tests/unit/policies/test_learned.py::test_a_fresh_process_plays_without_torch",
    "tests/unit/policies/test_learned.py::test_the_command_plays_a_model_in_a_fresh_process_without_torch",
    "tests/unit/policies/test_simulation.py::test_halting_and_going_back_change_nothing",
    "tests/unit/policies/test_simulation.py::test_a_simulation_survives_a_file",
    "tests/unit/policies/test_user_errors.py",  # 33 s
    "tests/unit/policies/test_user_scores.py",  # 37 s: every function is compiled
    "tests/unit/report/test_report.py::test_figures_are_drawn_in_every_format",  # 8 s
    "tests/unit/test_reference.py::test_lublin_numbers_that_public_simulators_agree_on",  # 40 s
    "tests/unit/test_reference_twins.py::test_every_rule_is_drawn",
    "tests/unit/workload/models/test_model_registry.py::test_no_line_of_a_model_runs_once_a_job",
    "tests/unit/workload/readers/test_generic_readers.py::test_panics_of_the_parquet_library_are_not_printed",
    "tests/unit/workload/readers/test_reader_fuzz.py",  # 11 s
    "tests/unit/workload/readers/test_real_logs.py",  # 10 s
    "tests/unit/workload/test_estimates.py::test_the_future_teaches_nothing",
    "tests/unit/workload/test_fitting.py::test_shipped_models_are_within_a_tenth_of_their_logs",
    "tests/unit/workload/test_fitting.py::test_shipped_parameters_are_those_the_script_fits",
    "tests/unit/workload/test_writers.py::test_generic_formats_lose_nothing",
)
FILES = frozenset(entry for entry in LEFT_OUT if "::" not in entry)
FUNCTIONS = frozenset(entry for entry in LEFT_OUT if "::" in entry)


def leaves_out_file(path: str) -> bool:
    """Of a path within the repository, with slashes."""
    return any(path == entry or path.startswith(f"{entry}/") for entry in FILES)


def leaves_out_test(path: str, function: str) -> bool:
    return f"{path}::{function}" in FUNCTIONS
