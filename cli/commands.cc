#include "cli/commands.h"

#include "base/spelling.h"

namespace moorage::cli {
namespace {

constexpr std::string_view kWorkspaces = "workspaces", kRun = "commands", kFiles = "files",
                           kStates = "snapshots", kTeams = "teams", kRepos = "repositories",
                           kDisk = "disk", kPlaces = "backends", kHost = "host",
                           kNetwork = "network", kScripts = "scripts";

constexpr Topic kTopics[] = {{kWorkspaces, "create, configure, delete"},
                             {kRun, "run, watch, end"},
                             {kFiles, "changes, copies, reports"},
                             {kStates, "snapshots, forks, best-of"},
                             {kTeams, "leases, sharing"},
                             {kNetwork, "hosts, credentials, pushes"},
                             {kRepos, "the cache of repositories"},
                             {kDisk, "usage, archives, gc"},
                             {kPlaces, "move, export, import"},
                             {kHost, "health, settings, rescue"},
                             {kScripts, "events, completion, help"}};

// The columns after the function: runs_command, the line on the first page of the help, and the
// words that people type for it elsewhere.
constexpr Command kCommands[] = {
    {"create", kWorkspaces, "Create a workspace from a repository or a local directory",
     "moorage create https://github.com/acme/shop --name auth\n"
     "moorage create --from . --name try-1",
     create_command, false, 1, "new make init"},
    {"ls", kWorkspaces, "List workspaces", "moorage ls\nmoorage ls --label task=AUTH-12",
     ls_command, false, 2, "workspaces dir"},
    {"show", kWorkspaces, "Show details of a workspace", "moorage show auth", show_command, false,
     3, "get details"},
    {"set", kWorkspaces, "Change the settings and limits of a workspace",
     "moorage set auth --idle-stop 2h --pre-stop 'make save'\n"
     "moorage set auth --memory 8G --cpus 4",
     set_command, false, 0, "update configure edit limit"},
    {"rename", kWorkspaces, "Give a workspace another name", "moorage rename auth auth-old",
     rename_command, false, 0, "mv"},
    {"label", kWorkspaces, "Set, remove or show the labels of a workspace",
     "moorage label auth task=AUTH-12 old-", label_command, false, 0, "labels tag"},
    {"start", kWorkspaces, "Start the sandbox of a workspace", "moorage start auth", start_command,
     false, 0, "up resume boot"},
    {"sync", kWorkspaces, "Bring upstream's newer branches and tags into a workspace",
     "moorage sync auth\nmoorage exec auth -- git rebase --autostash origin/main", sync_command,
     false, 0, "update refresh upstream"},
    {"stop", kWorkspaces, "Stop the sandbox of a workspace; its files are kept",
     "moorage stop auth", stop_command, false, 9, "down halt pause suspend"},
    {"rm", kWorkspaces, "Delete a workspace; undelete restores it", "moorage rm auth", rm_command,
     false, 10, "del destroy"},
    {"undelete", kWorkspaces, "Restore a deleted workspace", "moorage undelete auth",
     undelete_command, false, 0, "recover"},

    {"exec", kRun, "Run a command in a workspace",
     "moorage exec auth -- npm test\n"
     "printf 'make -j2' | moorage exec auth -- sh -s\n"
     "moorage exec auth --detach -t -- my-agent 'split the auth module'",
     exec_command, true, 4, "execute"},
    {"shell", kRun, "Open a login shell in a workspace", "moorage shell auth", shell_command, true,
     5, "ssh enter login sh bash console"},
    {"logs", kRun, "Print the output of a command, during or after its run", "moorage logs ex_3 -f",
     logs_command, false, 6, "output tail follow"},
    {"run", kRun, "Run a command in a new, disposable workspace",
     "moorage run --rm --repo https://github.com/acme/shop -- make check", run_command, true},
    {"ps", kRun, "List running commands, or all commands of a workspace", "moorage ps", ps_command,
     false, 0, "processes jobs execs"},
    {"top", kRun, "Watch the load of workspaces and who waits for input", "moorage top",
     top_command, false, 0, "stats monitor watch"},
    {"history", kRun, "List past commands, even of a deleted workspace",
     "moorage history auth\nmoorage history auth -n 5", history_command},
    {"attach", kRun, "Connect to a running command: its output and its input",
     "moorage attach ex_3\nmoorage attach auth", attach_command, true, 0, "connect join"},
    {"kill", kRun, "Cancel a command, or send it a signal",
     "moorage kill ex_3\nmoorage kill ex_3 HUP", kill_command, false, 0,
     "cancel signal terminate interrupt"},
    {"wait", kRun, "Wait for a command and exit with its code", "moorage wait ex_3", wait_command,
     true},

    {"diff", kFiles, "Print the changes of a workspace as a patch",
     "moorage diff auth > auth.patch\nmoorage diff auth --stat -- src", diff_command, false, 7,
     "changes patch"},
    {"apply", kFiles, "Put the changes of a workspace into a local directory",
     "moorage apply auth\nmoorage apply auth ~/src/shop --check", apply_command, false, 0,
     "merge patch pull bring"},
    {"status", kFiles, "List changed files; without a name, list workspaces", "moorage status auth",
     status_command},
    {"files", kFiles, "List a directory", "moorage files auth src", files_command},
    {"cat", kFiles, "Print a file", "moorage cat auth:README.md", cat_command, false, 0,
     "read print"},
    {"cp", kFiles, "Copy files or directories in or out",
     "moorage cp auth:dist ./dist\nmoorage cp notes.txt auth:/home/user/notes.txt\n"
     "tar c src | moorage cp - auth:src.tar",
     cp_command, false, 0, "upload download scp rsync"},
    {"report", kFiles, "Write a page about a workspace for a reviewer",
     "moorage report auth > auth.md\nmoorage report auth -o auth.html", report_command, false, 0,
     "summary"},

    {"snapshot", kStates, "Save the state of a workspace",
     "moorage snapshot auth green\nmoorage snapshot auth --external-id checkpoint-17",
     snapshot_command, false, 8, "save checkpoint"},
    {"snapshots", kStates, "List the snapshots of a workspace", "moorage snapshots auth",
     snapshots_command, false, 0, "checkpoints"},
    {"restore", kStates, "Restore a workspace to a snapshot",
     "moorage restore auth green\nmoorage restore auth sn_12 --kill", restore_command, false, 0,
     "rollback reset checkout"},
    {"undo", kStates, "Restore a workspace to its state before a command",
     "moorage set auth --snapshot before-exec\nmoorage undo auth\nmoorage undo auth ex_40",
     undo_command, false, 0, "revert"},
    {"fork", kStates, "Create workspaces from the state of another",
     "moorage fork auth --count 5\nmoorage fork auth try-a try-b --at green", fork_command, false,
     0, "branch duplicate"},
    {"promote", kStates, "Replace a workspace's contents with those of its fork",
     "moorage promote auth-3", promote_command, false, 0, "merge adopt"},
    {"best-of", kStates, "Run several attempts side by side and keep the best",
     "moorage best-of auth --count 5 --each 'agent {i}' --test 'make check'\n"
     "moorage best-of auth --patches fixes/ --test make --promote smallest-diff\n"
     "moorage best-of bo_3",
     best_of_command},
    {"compare", kStates, "Show the differences between two workspaces",
     "moorage compare auth-1 auth-3", compare_command, false, 0, "cmp"},
    {"tree", kStates, "Show the lineage of snapshots and forks", "moorage tree auth", tree_command,
     false, 0, "lineage graph"},
    {"drop", kStates, "Delete a snapshot", "moorage drop auth green", drop_command, false, 0,
     "forget"},

    {"share", kTeams, "Let a group of this host use a workspace",
     "moorage share auth --group devs\nmoorage share auth --private", share_command, false, 0,
     "chgrp grant"},
    {"lease acquire", kTeams, "Become the only one who may change a workspace",
     "moorage lease acquire auth --holder agent-7", lease_acquire_command, false, 0,
     "take get lock"},
    {"lease ls", kTeams, "List held workspaces and their holders", "moorage lease ls",
     lease_ls_command, false, 0, "held leases"},
    {"lease show", kTeams, "Show who holds a workspace", "moorage lease show auth",
     lease_show_command, false, 0, "status get"},
    {"lease keep", kTeams, "Keep a lease alive until this program is killed",
     "moorage lease keep auth --lease ws_12.3 &", lease_keep_command, false, 0, "renew heartbeat"},
    {"lease release", kTeams, "Give up a lease", "moorage lease release auth --lease 3",
     lease_release_command, false, 0, "drop rm delete unlock"},
    {"lease run", kTeams, "Hold a workspace while a local command runs",
     "moorage lease run auth --holder agent-7 -- my-agent auth", lease_run_command, true, 0,
     "exec"},

    {"net allow", kNetwork, "Allow a workspace to reach hosts; applies at once",
     "moorage net allow auth registry.npmjs.org\nmoorage net allow auth github.com:22\n"
     "moorage net allow auth packages.example.com GET",
     net_allow_command, false, 0, "add open permit"},
    {"net deny", kNetwork, "Refuse hosts that would be allowed; cuts open connections",
     "moorage net deny auth .example.com", net_deny_command, false, 0, "block close"},
    {"net forget", kNetwork, "Remove a workspace's own rules for hosts",
     "moorage net forget auth registry.npmjs.org", net_forget_command, false, 0,
     "rm remove delete drop"},
    {"net show", kNetwork, "List the rules and what the sandbox uses", "moorage net show auth",
     net_show_command, false, 0, "ls list status rules"},
    {"net check", kNetwork, "Say whether a host may be reached, and why",
     "moorage net check auth github.com:22\n"
     "moorage net check auth https://api.example.com/v1/ POST",
     net_check_command, false, 0, "test explain"},
    {"net log", kNetwork, "List what commands reached and what was refused",
     "moorage net log auth -f", net_log_command, false, 0, "logs events tail"},

    {"credential add", kNetwork, "Let workspaces use a secret that never enters them",
     "moorage credential add own --for https://api.example.com/v1/ --from-stdin\n"
     "moorage credential add hub --for https://github.com/ --from-file ~/token",
     credential_add_command, false, 0, "secret key token create"},
    {"credential ls", kNetwork, "List credentials", "moorage credential ls", credential_ls_command,
     false, 0, "secrets"},
    {"credential rm", kNetwork, "Remove a credential; applies at once",
     "moorage credential rm claude", credential_rm_command, false, 0, "del revoke"},
    {"credential test", kNetwork, "Check that the secret of a credential can be read",
     "moorage credential test hub", credential_test_command, false, 0, "check verify"},

    {"approvals", kNetwork, "List the pushes that wait for an approval",
     "moorage approvals\nmoorage approvals auth --all", approvals_command, false, 0,
     "pushes pending reviews"},
    {"approve", kNetwork, "Let a push that waits pass, once", "moorage approve ap_3",
     approve_command, false, 0, "allow accept confirm"},
    {"refuse", kNetwork, "Refuse a push that waits", "moorage refuse ap_3", refuse_command, false,
     0, "deny reject"},

    {"repo add", kRepos, "Cache a repository", "moorage repo add https://github.com/acme/shop",
     repo_add_command, false, 0, "clone create"},
    {"repo ls", kRepos, "List cached repositories", "moorage repo ls", repo_ls_command},
    {"repo fetch", kRepos, "Fetch from upstream now",
     "moorage repo fetch acme/shop\nmoorage repo fetch repo_1", repo_fetch_command, false, 0,
     "update"},
    {"repo rm", kRepos, "Remove a repository from the cache", "moorage repo rm repo_1",
     repo_rm_command, false, 0, "drop"},

    {"du", kDisk, "Show disk use by workspace", "moorage du\nmoorage du auth", du_command, false, 0,
     "df usage size"},
    {"gc", kDisk, "Show reclaimable space and why, or reclaim it",
     "moorage gc --explain\nmoorage gc --run --until-free 20G", gc_command, false, 0,
     "clean prune cleanup"},
    {"pin", kDisk, "Protect a workspace from gc", "moorage pin auth", pin_command},
    {"unpin", kDisk, "Allow gc to reclaim a workspace", "moorage unpin auth", unpin_command},
    {"archive", kDisk, "Pack an idle workspace into one verified file", "moorage archive auth",
     archive_command},
    {"unarchive", kDisk, "Unpack the files of an archived workspace", "moorage unarchive auth",
     unarchive_command},

    {"move", kPlaces, "Move a workspace to another backend, image or runtime",
     "moorage move auth --backend docker\n"
     "moorage move auth --backend docker --image dev:2 --now\n"
     "moorage move auth --backend lxc --check",
     move_command, false, 0, "migrate"},
    {"export", kPlaces, "Write a workspace to a file, for another host",
     "moorage export auth auth.tar.zst\nmoorage export auth - | ssh other moorage import -",
     export_command},
    {"import", kPlaces, "Create a workspace from an exported file",
     "moorage import auth.tar.zst --name auth-2", import_command, false, 0, "load"},

    {"info", kHost, "Show backends, storage and checks of this host", "moorage info", info_command},
    {"doctor", kHost, "Compare the database with the disk; exits 0 if clean",
     "moorage doctor\nmoorage doctor --fix", doctor_command, false, 0, "check fsck verify"},
    {"config show", kHost, "Print each setting and where it comes from",
     "moorage config show\nmoorage config show sandbox", config_show_command},
    {"config check", kHost, "Check a configuration file, without using it",
     "moorage config check /etc/moorage/moorage.yaml", config_check_command, false, 0,
     "test verify validate"},
    {"config reload", kHost, "Put the file's policy into effect without a restart",
     "sudo moorage config reload", config_reload_command},
    {"rescue export", kHost, "Save a workspace when state.db cannot be read",
     "moorage rescue export auth auth.tar.zst", rescue_export_command, false, 0, "save"},
    {"restore-store", kHost, "Rebuild a store from the copy in replica.directory",
     "sudo moorage restore-store /mnt/replica --store /var/lib/moorage", restore_store_command},

    {"events", kScripts, "Print past events, or follow new ones", "moorage events -f",
     events_command, false, 0, "audit"},
    {"completion", kScripts, "Print a completion script for bash, zsh or fish",
     "source <(moorage completion bash)", completion_command, true},
    {"help", kScripts, "List the commands of a topic, or describe one command",
     "moorage help snapshots\nmoorage help exec", help_command, false, 0, "man usage topics"},
    {"version", kScripts, "Print the version", "moorage version", version_command},
};

}  // namespace

std::span<const Command> all_commands() { return kCommands; }

std::span<const Topic> all_topics() { return kTopics; }

using Words = std::vector<std::string>;

std::vector<size_t> plain_places(const Words& words) {
  std::vector<size_t> places;
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (words[i] == "--socket" || words[i] == "--lease") {
      ++i;
    } else if (!words[i].starts_with("-")) {
      places.push_back(i);
    }
  }
  return places;
}

Words plain_words(const Words& words) {
  Words plain;
  for (const size_t place : plain_places(words)) plain.push_back(words[place]);
  return plain;
}

const Command* find_command(const Words& words) {
  std::string name;
  for (const std::string& word : plain_words(words)) {
    name += (name.empty() ? "" : " ") + word;
    for (const Command& command : all_commands()) {
      if (command.name == name) return &command;
    }
    if (name.find(' ') != std::string::npos) break;
  }
  return nullptr;
}

const Topic* find_topic(std::string_view name) {
  for (const Topic& topic : all_topics()) {
    if (topic.name == name) return &topic;
  }
  return nullptr;
}

std::vector<std::string_view> names_in(const std::string& group) {
  std::vector<std::string_view> names;
  for (const Command& command : all_commands()) {
    const size_t space = command.name.find(' ');
    const bool grouped = space != std::string_view::npos;
    if (group.empty()) names.push_back(command.name.substr(0, space));
    if (grouped && command.name.substr(0, space) == group)
      names.push_back(command.name.substr(space + 1));
  }
  return names;
}

std::optional<std::string> meant_command(const std::string& group, const std::string& typed) {
  if (typed.empty()) return std::nullopt;
  const std::string before = group.empty() ? "" : group + " ";
  for (const Command& command : all_commands()) {
    if (!command.name.starts_with(before)) continue;
    const std::string_view last_word = command.name.substr(command.name.rfind(' ') + 1);
    std::string known(" ");
    known.append(last_word).append(" ").append(command.also_known).append(" ");
    if (known.find(" " + typed + " ") != std::string::npos) return std::string(command.name);
  }
  const auto near = base::nearest_spelling(typed, names_in(group));
  return near ? std::optional(before + *near) : std::nullopt;
}

}  // namespace moorage::cli
