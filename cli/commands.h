// The table of commands: one row each, in the order of --help. A command is a function that
// declares its options and answers what to do with them; nothing else in the CLI knows any command
// by name.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"

namespace moorage::cli {

struct Command {
  std::string_view name;     // "create"; "repo add" is a command of the group "repo"
  std::string_view section;  // heading in --help; empty: it is not for people
  std::string_view summary;
  std::string_view example;  // one or more lines, as typed
  Action (*declare)(Options&);
  // Words after -- are a command for the sandbox, not arguments; and since its exit code becomes
  // ours, our own failures are told apart from it by 125.
  bool runs_command = false;
};

std::span<const Command> all_commands();

// command_lookup.cc. What the user wants, known before anything is parsed, so that only one command
// declares its options; nullptr: none yet, or none that there is.
const Command* find_command(const std::vector<std::string>& words);
// The words in front of any "--" that are not options.
std::vector<std::string> plain_words(const std::vector<std::string>& words);
// The words that can stand after `group` ("repo"), or first when it is empty.
std::vector<std::string_view> names_in(const std::string& group);

// create_command.cc
Action create_command(Options& options);
// list_commands.cc, show_command.cc
Action ls_command(Options& options);
Action show_command(Options& options);
// set_command.cc
Action set_command(Options& options);
// lifecycle_commands.cc
Action start_command(Options& options);
Action stop_command(Options& options);
Action rm_command(Options& options);
Action undelete_command(Options& options);
// move_command.cc
Action move_command(Options& options);
// lease_commands.cc
Action lease_acquire_command(Options& options);
Action lease_show_command(Options& options);
Action lease_keep_command(Options& options);
Action lease_release_command(Options& options);
Action lease_run_command(Options& options);
Action share_command(Options& options);
// snapshot_commands.cc
Action snapshot_command(Options& options);
Action snapshots_command(Options& options);
Action drop_command(Options& options);
Action restore_command(Options& options);
Action undo_command(Options& options);
Action fork_command(Options& options);
Action promote_command(Options& options);
Action tree_command(Options& options);
// best_of_commands.cc
Action best_of_command(Options& options);
Action compare_command(Options& options);
// archive_commands.cc
Action archive_command(Options& options);
Action unarchive_command(Options& options);
Action export_command(Options& options);
Action import_command(Options& options);
// exec_commands.cc
Action exec_command(Options& options);
Action shell_command(Options& options);
Action run_command(Options& options);
// process_commands.cc
Action ps_command(Options& options);
Action kill_command(Options& options);
Action wait_command(Options& options);
// history_command.cc
Action history_command(Options& options);
// top_command.cc
Action top_command(Options& options);
// output_commands.cc
Action logs_command(Options& options);
Action attach_command(Options& options);
// file_commands.cc, copy_command.cc
Action files_command(Options& options);
Action cat_command(Options& options);
Action cp_command(Options& options);
// change_commands.cc
Action diff_command(Options& options);
Action status_command(Options& options);
// report_command.cc
Action report_command(Options& options);
// repo_commands.cc
Action repo_add_command(Options& options);
Action repo_ls_command(Options& options);
Action repo_fetch_command(Options& options);
Action repo_rm_command(Options& options);
// doctor_command.cc, rescue_command.cc, du_command.cc
Action doctor_command(Options& options);
Action rescue_export_command(Options& options);
// restore_store_command.cc
Action restore_store_command(Options& options);
Action du_command(Options& options);
// gc_command.cc
Action gc_command(Options& options);
Action pin_command(Options& options);
Action unpin_command(Options& options);
// host_commands.cc, event_command.cc
Action info_command(Options& options);
Action config_show_command(Options& options);
Action version_command(Options& options);
Action events_command(Options& options);
// completion_command.cc
Action completion_command(Options& options);

}  // namespace moorage::cli
