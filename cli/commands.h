// The table of commands: one row each, with its topic, its summary for the help texts and the words
// that people type for it elsewhere. Help, completion and the manual pages all read this table. A
// command is a function that declares its options and returns the action to run.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.h"

namespace moorage::cli {

struct Topic {
  std::string_view name;  // as in `moorage help snapshots`
  std::string_view about;
};

struct Command {
  std::string_view name;   // "create"; "repo add" is a command of the group "repo"
  std::string_view topic;  // the name of one of all_topics()
  std::string_view summary;
  std::string_view example;  // one or more lines, as typed
  Action (*declare)(Options&);
  // The words after -- are a command, not arguments. Its exit code becomes ours, so failures of our
  // own exit with 125.
  bool runs_command = false;
  int everyday = 0;                  // its line on the first page of the help, from 1; 0: not there
  std::string_view also_known = {};  // words that other programs use for it: "delete remove"
};

inline constexpr int kFailed = 1;         // a failure of our own
inline constexpr int kFailedToRun = 125;  // the same, where the exit code is the sandbox's

std::span<const Command> all_commands();
std::span<const Topic> all_topics();

// command_line.cc
std::string help_of(const Command& command);
std::vector<ToldOption> global_options();  // of every command

// command_lookup.cc. The command that `words` name, found before anything is parsed, so that only
// this one declares its options; nullptr when they name none.
const Command* find_command(const std::vector<std::string>& words);
const Topic* find_topic(std::string_view name);
// The words before any "--" that are not options.
std::vector<std::string> plain_words(const std::vector<std::string>& words);
// The words that can follow `group` ("repo"); the possible first words when it is empty.
std::vector<std::string_view> names_in(const std::string& group);
// The command of `group` that was probably meant: known elsewhere by that word, or spelled like it.
std::optional<std::string> meant_command(const std::string& group, const std::string& typed);

// cli/commands/create_command.cc
Action create_command(Options& options);
// cli/commands/list_commands.cc, cli/commands/show_command.cc
Action ls_command(Options& options);
Action show_command(Options& options);
// cli/commands/set_command.cc
Action set_command(Options& options);
// cli/commands/lifecycle_commands.cc
Action start_command(Options& options);
Action stop_command(Options& options);
Action rm_command(Options& options);
Action undelete_command(Options& options);
// cli/commands/move_command.cc
Action move_command(Options& options);
// cli/commands/lease_commands.cc
Action lease_acquire_command(Options& options);
Action lease_show_command(Options& options);
Action lease_keep_command(Options& options);
Action lease_release_command(Options& options);
Action lease_run_command(Options& options);
Action share_command(Options& options);
// cli/commands/snapshot_commands.cc
Action snapshot_command(Options& options);
Action snapshots_command(Options& options);
Action drop_command(Options& options);
Action restore_command(Options& options);
Action undo_command(Options& options);
Action fork_command(Options& options);
Action promote_command(Options& options);
Action tree_command(Options& options);
// cli/commands/best_of_commands.cc
Action best_of_command(Options& options);
Action compare_command(Options& options);
// cli/commands/archive_commands.cc
Action archive_command(Options& options);
Action unarchive_command(Options& options);
Action export_command(Options& options);
Action import_command(Options& options);
// cli/commands/exec_commands.cc
Action exec_command(Options& options);
Action shell_command(Options& options);
Action run_command(Options& options);
// cli/commands/process_commands.cc
Action ps_command(Options& options);
Action kill_command(Options& options);
Action wait_command(Options& options);
// cli/commands/history_command.cc
Action history_command(Options& options);
// cli/commands/top_command.cc
Action top_command(Options& options);
// cli/commands/output_commands.cc
Action logs_command(Options& options);
Action attach_command(Options& options);
// cli/commands/file_commands.cc, cli/commands/copy_command.cc
Action files_command(Options& options);
Action cat_command(Options& options);
Action cp_command(Options& options);
// cli/commands/change_commands.cc
Action diff_command(Options& options);
Action status_command(Options& options);
// cli/commands/report_command.cc
Action report_command(Options& options);
// cli/commands/repo_commands.cc
Action repo_add_command(Options& options);
Action repo_ls_command(Options& options);
Action repo_fetch_command(Options& options);
Action repo_rm_command(Options& options);
// cli/commands/doctor_command.cc, cli/commands/rescue_command.cc, cli/commands/du_command.cc
Action doctor_command(Options& options);
Action rescue_export_command(Options& options);
// cli/commands/restore_store_command.cc
Action restore_store_command(Options& options);
Action du_command(Options& options);
// cli/commands/gc_command.cc
Action gc_command(Options& options);
Action pin_command(Options& options);
Action unpin_command(Options& options);
// cli/commands/host_commands.cc, cli/commands/event_command.cc
Action info_command(Options& options);
Action config_show_command(Options& options);
Action version_command(Options& options);
Action events_command(Options& options);
// cli/commands/completion_command.cc, help.cc
Action completion_command(Options& options);
Action help_command(Options& options);

}  // namespace moorage::cli
