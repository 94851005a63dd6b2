//! The server and the clients that are out there: the tests in `tests/sdk/`, run with the published
//! packages, which come from `PyPI` into an environment below `target/`, once. Each has a server of its
//! own.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::environment::{installed, workspace};

use tests::server::Server;

/// More than any test takes on a busy machine; one that hangs says where.
const SECONDS_MAX: u32 = 150;
/// For a test that does more than usual.
const SOAK_SECONDS_MAX: u32 = 7200;

/// Makes of each name a test that runs the function of that name in a module of Python.
macro_rules! python {
    ($($module:ident($server:path): $($test:ident)*;)*) => {
        $(mod $module {
            use super::{Server, run};
            $(#[test]
            fn $test() {
                run($server, stringify!($module), stringify!($test));
            })*
        })*

        const MODULES: &[(&str, &[&str])] =
            &[$((stringify!($module), &[$(stringify!($test)),*])),*];
    };
}

python! {
    documented(Server::dev):
        quick_start
        create
        start_with_resources
        simple_execution
        multi_line_code
        command_property
        metrics_property
        node
        handling_execution_results
        simple_command
        command_with_arguments
        command_with_timeout
        command_error_handling
        metrics
        context_manager
        manual_life_cycle
        state_persistence
        error_handling
        file_operations
        best_practices
    ;
    starting(Server::dev):
        a_cpu_count_that_the_sdk_rounds_to_zero_is_the_smallest_share
        a_start_gives_no_warning
        a_missing_namespace_is_the_default_one
        a_null_namespace_is_the_default_one
        a_start_without_a_config_takes_the_defaults
        both_images_of_the_sdk_start
        an_unknown_image_is_refused_by_its_name
        names_of_63_characters_and_of_one_are_names
        what_is_no_name_is_refused_in_words
        a_namespace_and_a_name_together_name_a_sandbox
        sandboxes_do_not_share_files
        envs_are_seen_by_code_and_by_commands
        an_env_without_a_value_is_refused_in_words
        a_workdir_is_where_code_and_commands_begin
        volumes_and_ports_are_heeded_or_refused_in_words
        a_limit_that_is_no_limit_is_refused_in_words
        a_start_of_what_runs_succeeds_and_changes_nothing
        starts_at_once_of_one_name_make_one_sandbox
        a_start_after_a_stop_is_a_new_sandbox
        a_stop_is_idempotent
        stops_at_once_all_succeed
        a_stop_is_quick_whatever_goes_on_inside
        a_stop_in_finally_does_not_hide_the_users_exception
        what_is_asked_of_a_sandbox_that_is_not_there_says_so
        starting_takes_less_than_a_second
    ;
    running(Server::dev):
        the_last_expressions_value_is_echoed
        the_sdk_shows_the_last_expressions_value
        the_language_is_echoed_as_it_was_asked_for
        an_unknown_language_is_refused_by_its_name
        state_stays_between_runs_of_a_language_and_not_between_languages
        output_is_never_null
        blank_lines_and_their_order_are_kept
        code_without_a_final_newline_says_all
        a_carriage_return_stays_within_its_line
        stdout_and_stderr_are_apart
        a_division_by_zero_is_a_result_that_has_an_error
        an_exit_keeps_its_output_and_the_next_run_works
        an_exit_of_the_repl_keeps_its_state
        a_crash_of_the_interpreter_is_a_result_and_the_loss_is_said
        an_overrun_raises_with_what_was_said_and_keeps_the_state
        an_overrun_of_javascript_raises_and_node_goes_on
        an_overrun_that_loses_the_state_says_so
        an_overruns_output_does_not_come_with_the_next_run
        a_timeout_may_be_a_fraction_of_a_second
        a_timeout_in_nanoseconds_is_read_as_such
        a_timeout_that_is_none_is_refused_in_words
        bytes_that_are_not_text_become_replacement_characters
        characters_of_many_bytes_arrive_whole
        what_code_says_cannot_be_taken_for_its_end
        code_well_above_two_megabytes_is_run
        code_beyond_what_an_interpreter_takes_is_refused_in_words
        megabytes_of_output_arrive_whole
        a_hundred_and_fifty_runs_at_once_on_one_session_arrive
        a_hundred_and_fifty_commands_at_once_on_one_session_arrive
        runs_on_one_repl_take_their_turns
        files_that_code_writes_are_seen_by_commands
        a_client_that_leaves_does_not_leave_its_run_in_the_way
        code_that_is_no_text_is_refused_in_words
    ;
    commands(Server::dev):
        a_result_has_both_shapes
        a_silent_command_has_empty_output_in_both_shapes
        null_and_missing_args_are_none
        args_reach_the_command_as_they_are
        args_that_are_no_texts_are_refused_in_words
        a_listing_of_what_is_not_there_is_a_result
        a_command_that_is_not_found_raises_and_the_sandbox_works_on
        a_command_that_runs_out_of_time_raises_with_what_was_said
        a_timeout_ends_the_whole_tree
        a_timeout_in_nanoseconds_is_read_as_such
        a_timeout_that_is_none_is_refused_in_words
        exit_codes_arrive_as_they_are
        death_by_a_signal_is_a_result_without_success
        a_working_directory_is_where_a_command_runs
        a_command_that_reads_finds_the_end_of_its_input
        a_command_runs_beside_a_busy_repl
        a_background_process_holds_no_answer_up
        megabytes_of_output_arrive_whole
    ;
    metrics(Server::dev):
        nothing_is_null_after_the_first_second
        a_busy_loop_reads_as_busy_as_it_is
        a_sandbox_reads_its_own_load_alone
        a_hundred_mebibytes_of_memory_show
        fifty_mebibytes_on_disk_show
        figures_answer_while_code_runs
        a_namespace_lists_its_own_and_a_star_lists_all
        a_sandbox_that_is_not_there_reads_as_not_running
        a_stopped_sandbox_reads_as_not_running
    ;
    json_rpc(Server::dev):
        what_is_no_json_is_a_parse_error
        an_empty_body_is_an_error_in_words
        a_deep_nesting_is_a_parse_error
        what_is_no_request_is_an_invalid_request
        an_invalid_request_is_answered_under_its_id
        an_unknown_method_is_named
        params_of_another_shape_are_bad_params
        missing_params_are_named
        params_that_nobody_knows_are_passed_over
        ids_come_back_as_they_were
        a_request_without_an_id_is_carried_out_and_answered
        an_error_is_never_null
        a_batch_is_answered_one_by_one
        an_empty_batch_is_an_invalid_request
        a_batch_of_nonsense_is_a_batch_of_errors
        a_batch_of_notifications_has_no_answer
        a_batch_of_a_hundred_is_answered_whole
        a_batch_without_end_is_refused_in_words
    ;
    door(Server::dev):
        health_answers
        a_connection_idle_for_longer_than_clients_keep_it_is_still_there
        a_session_that_paused_posts_again_without_an_error
        many_requests_go_over_one_connection
        requests_sent_ahead_are_answered_in_turn
        a_body_in_chunks_is_taken
        a_client_that_waits_to_be_asked_for_its_body_is_asked
        a_body_beyond_the_limit_is_refused_before_it_is_sent
        code_beyond_the_limit_raises_in_words
        a_get_of_the_rpc_path_says_what_it_takes
        a_path_that_is_not_there_says_so
        a_web_page_cannot_drive_the_server
        a_body_that_a_form_could_send_is_refused
        a_client_that_sends_its_body_slowly_holds_nobody_up
        half_closed_connections_are_answered_or_cleanly_cut
        a_thousand_idle_connections_hold_nobody_up
    ;
    keys(Server::with_keys):
        a_client_without_a_key_is_told_that_it_needs_one
        a_key_that_is_none_is_refused_in_words
        a_key_without_a_signature_or_with_another_secret_is_refused
        an_expired_key_is_refused_as_such
        a_revoked_key_is_refused_as_such_within_a_second
        a_key_of_another_namespace_is_refused_with_403
        a_star_of_a_namespaces_key_shows_no_other_namespace
        a_batch_reaches_no_further_than_its_key
        a_key_that_may_only_read_runs_nothing
        the_sdk_takes_a_key_as_an_argument_and_from_the_environment
        the_sdk_raises_in_words_without_a_good_key
        a_key_is_never_logged
        health_wants_no_key
        a_flood_of_bad_keys_holds_nobody_with_a_good_one_up
    ;
    sandbox_mcp(Server::dev):
        code_runs_and_keeps_its_state
        the_factory_makes_a_remote_sandbox
        node_runs
        a_command_is_read_in_its_own_shape
        a_command_runs_in_its_working_directory
        a_command_that_runs_out_of_time_raises_and_the_sandbox_works_on
        figures_are_read
    ;
    portal(Server::dev):
        nothing_is_lost_of_short_output
        nothing_is_lost_of_ten_thousand_lines
        a_syntax_error_is_reported_whole_every_time
        output_without_a_newline_does_not_hang
        an_exit_does_not_hang
        a_question_finds_the_end_of_its_input
        a_loop_without_end_does_not_wedge
        an_unclosed_string_is_a_syntax_error
        a_redefined_print_harms_nobody
        blank_lines_within_a_block_do_not_end_it
        nothing_runs_after_what_was_raised
        an_exit_does_not_end_the_repl_for_good
        the_output_of_an_overrun_stays_with_it
        a_background_process_does_not_hold_the_answer
        a_timeout_ends_more_than_the_shell
        a_hundred_megabytes_of_output_take_no_gigabytes
        hundreds_of_evaluations_take_little_more_than_a_question
    ;
    load(Server::dev):
        sixteen_clients_lose_no_byte
        sixteen_clients_of_their_own_sandboxes_lose_no_line_of_code
        sandboxes_leave_nothing_behind
        sandboxes_that_end_in_trouble_leave_nothing_behind
    ;
}

fn run(start: fn() -> Server, module: &str, test: &str) {
    let python = match installed("sdk", &sources().join("install")) {
        Ok(home) => home.join("bin/python"),
        Err(reason) => return tests::skip(&format!("no clients to test with: {reason}")),
    };
    let server = start();
    let is_soak = std::env::var_os("BURROW_SERVER_RUNS").is_some();
    let seconds = if is_soak { SOAK_SECONDS_MAX } else { SECONDS_MAX };
    let ran = Command::new(python)
        .arg(sources().join("run.py"))
        .args([module, test])
        .current_dir(server.scratch())
        .envs(server.environment())
        // Set but empty, it is looked for nowhere else.
        .env("MSB_API_KEY", "")
        .env("BURROW_TEST_SECONDS_MAX", seconds.to_string())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Python runs");
    if !ran.status.success() {
        let stderr = [ran.stdout, ran.stderr].concat();
        let log = fs::read_to_string(server.log()).unwrap_or_default();
        panic!("{}\nthe server said:\n{log}", String::from_utf8_lossy(&stderr));
    }
}

fn sources() -> PathBuf {
    workspace().join("tests/sdk")
}

#[test]
fn every_test_that_is_written_in_python_is_run() {
    for (module, tests) in MODULES {
        let text =
            fs::read_to_string(sources().join(module).with_extension("py")).expect("a module");
        let written: Vec<_> = text.lines().filter_map(name_of_test).collect();
        assert_eq!(&written, tests, "{module}");
    }
    let is_listed = |name: &str| MODULES.iter().any(|(module, _)| *module == name);
    for entry in fs::read_dir(sources()).expect("a directory").flatten() {
        let name = entry.file_name().into_string().expect("UTF-8");
        let Some(module) = name.strip_suffix(".py") else { continue };
        assert!(is_listed(module) || ["run", "wire"].contains(&module), "{name} is run by nobody");
    }
}

/// The name of the function that begins on a line, unless it is one for others to use.
fn name_of_test(line: &str) -> Option<&str> {
    let begun = line.strip_prefix("async def ").or_else(|| line.strip_prefix("def "))?;
    let (name, _) = begun.split_once('(')?;
    (!name.starts_with('_')).then_some(name)
}
