"""What users of other chats complained of, each complaint with the test that it does not happen here.

The numbers are those of a survey of the trackers of elia, oterm, parllama, llm, crush, open-webui, jan, llama.cpp,
llama-cpp-python and others; the words say what went wrong there. Each case names the tests that would fail if it went
wrong here, or says why it cannot, or, as `Open`, what is not tested yet.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """A complaint, and the tests that hold it off as ``file::test``."""

    wrong: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Absent:
    """A complaint that cannot arise here."""

    wrong: str
    because: str


@dataclass(frozen=True)
class Open:
    """A complaint that nothing here tests yet."""

    wrong: str
    missing: str


def case(wrong: str, *tests: str) -> Case:
    return Case(wrong, tests)


CASES: dict[int, Case | Absent | Open] = {
    # Stop, Ctrl-C and what is left behind
    1: case(
        "a reply cannot be stopped",
        "tui_chat::escape_stops_and_keeps_what_was_said",
        "host_serving::a_stop_takes_less_than_a_tenth_of_a_second",
    ),
    2: case(
        "Ctrl-C in a reply ends the chat",
        "tui_chat::control_c_stops_first_and_quits_only_when_idle",
        "cli_plain::control_c_stops_the_reply_and_keeps_it",
    ),
    3: case("Ctrl-C loses the conversation", "cli_plain::control_c_stops_the_reply_and_keeps_it"),
    5: Absent(
        "a broken-off tool call locks the session",
        "the chat runs no tools; through the endpoint, calls and results are the client's own transcript",
    ),
    6: case(
        "the engine goes on after a stop",
        "host_engine::cancel_keeps_the_text_so_far",
        "host_process::client_that_hangs_up_stops_the_reply",
        "host_process::killed_client_stops_its_reply",
    ),
    7: case("leaving a chat stops or mixes its reply", "tui_chat::switching_neither_stops_nor_mixes_replies"),
    9: case(
        "a long prompt cannot be interrupted",
        "host_engine::cancel_while_the_prompt_is_evaluated",
        "host_process::hanging_up_during_a_long_prompt_stops_it",
    ),
    10: case(
        "stop and ask again crashes",
        "host_engine::cancel_and_ask_again_many_times",
        "host_model::stop_and_ask_again_many_times",
    ),
    11: case(
        "a stop deletes what was said",
        "tui_writing::a_stopped_reply_goes_on_beside_itself",
        "host_continue::a_stopped_reply_goes_on_in_a_sibling_that_begins_with_it",
    ),
    # Terminal
    13: case(
        "the terminal is left in another mode",
        "tui_exit::quitting_leaves_a_clean_terminal",
        "tui_exit::a_signal_leaves_a_clean_terminal",
        "tui_exit::an_exception_leaves_a_clean_terminal_and_a_bad_exit_code",
        "tui_terminal::stop_and_continue_give_the_terminal_back_and_take_it_again",
        "tui_terminal::control_z_goes_to_the_shell_and_fg_comes_back_to_what_was_typed",
    ),
    14: Open(
        "a paste without its end swallows every key",
        "a paste that is never closed; SIGTERM ends the chat cleanly all the same",
    ),
    15: case(
        "no key for a new line works everywhere",
        "tui_exit::keys_of_a_plain_terminal",
        "tui_terminal::inside_tmux",
        "tui_composer::newline_keys_of_old_terminals",
    ),
    17: case(
        "emoji freeze the input", "tui_composer::emoji_made_of_several_characters_are_pasted_as_they_are"
    ),
    18: case("a paste comes twice", "tui_exit::keys_of_a_plain_terminal"),
    19: case(
        "a paste of lines sends the first",
        "tui_composer::a_paste_of_lines_is_text_and_is_not_sent",
        "tui_composer::pasted_lines_that_come_as_keys_are_not_sent",
    ),
    21: case(
        "a huge paste swamps the input",
        "tui_composer::a_huge_line_stands_as_a_mark_and_is_sent_whole",
        "tui_composer::folding_starts_where_a_line_gets_slow",
    ),
    22: Absent("paste does nothing on Windows", "Windows is not supported yet, and nothing here runs on it"),
    23: Open(
        "a slow clipboard stalls the keys", "the copy runs beside the UI loop, and no test makes it slow"
    ),
    25: case(
        "a resize loses the end",
        "tui_chat::the_end_stays_in_view_when_the_terminal_changes_its_size",
        "tui_terminal::the_end_stays_in_view_when_the_size_changes_while_a_reply_streams",
    ),
    26: case(
        "it gets slower with the transcript",
        "tui_chat::five_hundred_messages_cost_no_more_than_a_window",
        "tui_chat::a_chat_that_stays_open_takes_down_what_is_far_above",
        "tui_chat::focus_reports_do_no_harm",
    ),
    27: case("each token on a line of its own", "tui_chat::what_is_streamed_is_what_one_update_shows"),
    29: Absent(
        "a line editor stalls on a big paste",
        "the plain chat reads lines from the terminal, without an editor",
    ),
    30: case("redirected output is mis-encoded", "cli_process::text_is_utf8_under_any_locale"),
    31: case("an idle pipe hangs the program", "cli_process::idle_standard_input_is_left_alone"),
    # Markdown
    33: case(
        "the last tokens are dropped",
        "tui_chat::what_is_streamed_is_what_one_update_shows",
        "tui_markdown::a_streamed_block_ends_as_one_update_shows_it",
    ),
    34: case(
        "text of others is markup",
        "tui_untrusted::nasty_text_is_shown_in_questions_replies_titles_and_errors",
        "tui_untrusted::nasty_text_is_shown_in_what_was_learned",
        "tui_untrusted::nasty_text_is_shown_where_it_is_found_told_corrected_and_forgotten",
    ),
    35: case("an odd language of a fence crashes", "tui_untrusted::a_fence_of_any_language_is_code"),
    37: case(
        "an open fence is lost when text is added",
        "tui_markdown::a_streamed_block_ends_as_one_update_shows_it",
        "tui_markdown::cuts_do_not_depend_on_the_pieces_and_lose_nothing",
    ),
    38: case(
        "each token costs more than the one before",
        "tui_markdown::a_long_block_is_cut_and_a_short_one_is_not",
        "tui_markdown::the_parts_of_a_block_touch_and_the_done_ones_are_left_alone",
    ),
    39: case(
        "what is settled flickers",
        "tui_markdown::the_parts_of_a_block_touch_and_the_done_ones_are_left_alone",
    ),
    # Bytes, tokens, templates
    41: case(
        "characters split over tokens are lost",
        "model_decoders::characters_come_whole",
        "host_engine::characters_split_over_tokens_come_whole",
    ),
    42: case(
        "a length limit cuts a character",
        "host_engine::length_in_the_middle_of_a_character_ends_before_it",
        "host_continue::a_character_that_was_cut_in_two_is_put_together",
    ),
    43: case(
        "bytes are dropped silently",
        "model_decoders::broken_bytes_become_the_same_text_in_any_chunks",
        "host_engine::reply_is_streamed_and_kept_with_all_that_made_it",
    ),
    45: case(
        "stops leak into the text",
        "host_engine::stop_string_over_several_tokens",
        "host_engine::text_that_only_begins_like_a_stop_is_released",
        "host_engine::control_token_spelled_in_pieces_is_never_shown",
        "model_templates::every_end_stops_and_a_reply_ends_with_one",
    ),
    46: case(
        "a template without a system role fails",
        "model_renderer::a_template_without_a_system_turn_gets_it_in_the_first_user_turn",
        "model_templates::system_prompt_is_said_once_and_nobody_elses",
    ),
    47: case(
        "roles must alternate",
        "model_renderer::turns_of_one_role_are_merged_and_empty_replies_left_out",
        "model_templates::whatever_is_done_to_a_conversation_it_renders",
    ),
    49: case(
        "a template's failure spoils the prompt",
        "model_templates::system_message_in_the_middle_joins_the_first",
        "model_renderer::a_template_that_cannot_be_used_is_a_model_file_error",
    ),
    50: case(
        "the prompt is not what was meant",
        "model_renderer::a_default_system_prompt_is_always_passed",
        "model_renderer::real_tokens_equal_those_of_the_template_rendered_whole",
    ),
    51: case(
        "training sees another end of turn than serving",
        "model_renderer::the_completion_is_the_text_and_the_end_of_turn",
        "model_parity::the_base_agrees_on_both_sides",
    ),
    # Context window
    53: case(
        "the chat crashes past the window",
        "host_process::long_conversation_leaves_out_its_oldest_and_says_so",
        "model_renderer::fit_leaves_out_whole_exchanges_and_as_few_as_it_can",
    ),
    54: case(
        "the current message is trimmed away",
        "host_process::message_that_does_not_fit_comes_back_and_leaves_nothing",
        "model_renderer::one_message_that_is_too_long_says_so",
    ),
    55: case(
        "an answer is kept without its question",
        "model_renderer::fit_leaves_out_whole_exchanges_and_as_few_as_it_can",
    ),
    57: Absent(
        "an unknown window counts as none",
        "the window is the one this program makes; no engine has to report it",
    ),
    58: case(
        "it goes on past the window in gibberish",
        "host_engine::window_ends_a_reply_that_never_does",
        "host_model::a_reply_that_never_ends_stops_at_the_window",
    ),
    59: case(
        "two chats at the limit both fail",
        "host_engine::two_at_once_both_complete",
        "host_openai::overflow_is_400_before_any_stream",
    ),
    61: case("an overflow is an empty stream", "host_openai::overflow_is_400_before_any_stream"),
    # Data
    62: case(
        "what was said is gone after a kill",
        "host_process::next_host_closes_what_a_killed_one_left_open",
        "host_engine::text_is_saved_while_it_streams",
    ),
    63: case(
        "a write that breaks off spoils the file",
        "store_files::a_failed_block_leaves_the_old_file_and_nothing_else",
        "exchange_import_broken_off::a_kill_in_the_middle_leaves_whole_conversations",
        "store_db::a_write_that_fails_changes_nothing",
    ),
    65: case(
        "what could not be read is written over",
        "store_db::a_file_that_is_no_database_is_left_untouched",
        "store_db::a_database_open_to_others_is_refused",
    ),
    66: case(
        "no way back after damage",
        "exchange_backup::everything_comes_back",
        "exchange_backup::a_damaged_database_is_moved_aside",
    ),
    67: case(
        "an upgrade hides what was there",
        "store_migrations::a_released_schema_is_upgraded_with_all_it_holds",
        "store_migrations::there_is_a_database_of_every_schema_before_this_one",
        "store_migrations::a_newer_schema_is_refused_untouched",
    ),
    69: case(
        "the database is locked",
        "store_db::four_writers_lose_no_row_and_meet_no_lock",
        "store_db::four_processes_of_mixed_work_lose_nothing_and_meet_no_lock",
    ),
    70: case("a delete comes back", "store_conversations::delete_leaves_nothing_behind"),
    71: case(
        "a rebuilt table loses its children",
        "store_migrations::a_released_schema_is_upgraded_with_all_it_holds",
        "store_migrations::an_upgraded_database_is_as_good_as_a_new_one",
    ),
    73: case(
        "an edit erases what followed",
        "tui_writing::an_edited_message_stands_beside_the_first",
        "host_continue::an_edited_message_stands_beside_the_old_one",
    ),
    74: case(
        "importing twice doubles everything",
        "exchange_import::a_later_export_adds_what_is_new",
        "exchange_import_broken_off::a_kill_in_the_middle_leaves_whole_conversations",
    ),
    75: case(
        "one odd entry keeps the others out",
        "exchange_import::branches_times_model_and_head_are_kept",
        "exchange_import::a_bad_entry_is_reported_and_the_others_come",
        "exchange_import::parts_that_are_not_text_leave_a_word",
        "exchange_import::no_entry_is_so_odd_that_it_keeps_the_others_out",
    ),
    77: case(
        "an export without children loses its order",
        "exchange_import::branches_times_model_and_head_are_kept",
    ),
    78: case(
        "search finds no Chinese or Japanese",
        "store_finding::any_script_and_any_code_is_found",
        "tui_finding::a_hit_anywhere_is_found_shown_in_context_and_jumped_to",
    ),
    79: case(
        "a query is a syntax error",
        "store_conversations::no_query_is_a_syntax_error",
        "store_conversations::search_finds_any_characters_as_they_are",
    ),
}
"""Every case of the survey that concerns the chat, by its number."""


@cache
def tests_of(file: str) -> frozenset[str]:
    """The tests that a file defines."""
    tree = ast.parse((TESTS / f"test_{file}.py").read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(
        node.name.removeprefix("test_")
        for node in ast.walk(tree)
        if isinstance(node, kinds) and node.name.startswith("test_")
    )


@pytest.mark.parametrize("number", CASES)
def test_each_case_has_its_tests_or_a_reason(number: int) -> None:
    found = CASES[number]
    assert found.wrong
    if isinstance(found, Case):
        assert found.tests
        missing = [name for name in found.tests if name.split("::")[1] not in tests_of(name.split("::")[0])]
        assert not missing, f"case {number}, {found.wrong}: no such test any more"
    else:
        assert found.because if isinstance(found, Absent) else found.missing
