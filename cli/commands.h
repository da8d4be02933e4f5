// The table of commands: one row each, with its topic, its summary for the help texts and the words
// that people type for it elsewhere. Help, completion and the manual pages all read this table. A
// command is a function that declares its options and returns the action to run. This header brings
// what every command needs: its options, the context, JSON and text.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/client/context.h"
#include "cli/options.h"

namespace moorage::cli {

struct Topic {
  std::string_view name;  // as in `moorage help snapshots`
  std::string_view about;
};

using Declare = Action(Options&);

struct Command {
  std::string_view name;   // "create"; "repo add" is a command of the group "repo"
  std::string_view topic;  // the name of one of all_topics()
  std::string_view summary;
  std::string_view example;  // one or more lines, as typed
  Declare* declare;
  // The words after -- are a command, not arguments. Its exit code becomes ours, so failures of our
  // own exit with 125.
  bool runs_command = false;
  int everyday = 0;  // its line on the first page of the help, from 1; 0: not there
  // More words for it, which the refusal of an unknown command suggests; aliases.h has those that
  // work.
  std::string_view also_known = {};
};

inline constexpr int kFailed = 1;         // a failure of our own
inline constexpr int kFailedToRun = 125;  // the same, where the exit code is the sandbox's

std::span<const Command> all_commands();
std::span<const Topic> all_topics();

// command_line.cc
std::string help_of(const Command& command);
std::vector<ToldOption> global_options();  // of every command

// The command that `words` name, found before anything is parsed, so that only this one declares
// its options; nullptr when they name none.
const Command* find_command(const std::vector<std::string>& words);
const Topic* find_topic(std::string_view name);
// The words before any "--" that are not options, and their places.
std::vector<size_t> plain_places(const std::vector<std::string>& words);
std::vector<std::string> plain_words(const std::vector<std::string>& words);
// The words that can follow `group` ("repo"); the possible first words when it is empty.
std::vector<std::string_view> names_in(const std::string& group);
// The command of `group` that was probably meant: known elsewhere by that word, or spelled like it.
std::optional<std::string> meant_command(const std::string& group, const std::string& typed);

// help.cc. The pages are made from the table of commands.
std::string first_page();  // fits a screen of 24 lines and 80 columns, with room for the prompt
std::string group_page(const std::string& group);  // "repo"
Declare help_command;

// The others are in the files of cli/commands/ that these lines name.
Declare create_command;                                             // workspace_source.cc
Declare exec_command, shell_command, run_command;                   // exec_commands.cc
Declare ls_command, show_command;                                   // list_, show_command.cc
Declare set_command;                                                // policy_options.cc
Declare rename_command, label_command;                              // naming_commands.cc
Declare start_command, stop_command, rm_command, undelete_command;  // lifecycle_commands.cc
Declare ps_command, kill_command, wait_command, history_command;    // process_commands.cc
Declare logs_command, attach_command;                               // output_commands.cc
Declare top_command, report_command, move_command, events_command;  // one file each
Declare status_command, files_command, cat_command, cp_command;     // file_commands.cc
Declare diff_command;
Declare apply_command;
Declare snapshot_command, snapshots_command, drop_command;  // snapshot_commands.cc
Declare restore_command, undo_command, fork_command, promote_command, tree_command;
Declare best_of_command, compare_command;                               // best_of_commands.cc
Declare lease_acquire_command, lease_show_command, lease_keep_command;  // lease_commands.cc
Declare lease_ls_command;                                               // list_commands.cc
void list_workspaces(Context& context);                                 // as `ls`
Declare lease_release_command, lease_run_command, share_command;
Declare net_allow_command, net_deny_command, net_forget_command;  // net_commands.cc
Declare net_show_command, net_check_command, net_log_command;
Declare credential_add_command, credential_ls_command;  // credential_commands.cc
Declare credential_rm_command, credential_test_command;
Declare approvals_command, approve_command, refuse_command;  // approval_commands.cc
// repo_commands.cc
Declare repo_add_command, repo_ls_command, repo_fetch_command, repo_rm_command, sync_command;
Declare du_command, gc_command, pin_command, unpin_command;                  // disk_commands.cc
Declare archive_command, unarchive_command, export_command, import_command;  // archive_commands.cc
Declare info_command, config_show_command, version_command;                  // host_commands.cc
Declare config_check_command, config_reload_command;
Declare doctor_command, rescue_export_command, restore_store_command;
Declare completion_command;  // completion_command.cc

}  // namespace moorage::cli
