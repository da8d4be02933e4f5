#include "cli/commands.h"

namespace moorage::cli {
namespace {

constexpr std::string_view kWork = "Work", kLeases = "Leases", kRun = "Run",
                           kFiles = "Files and changes", kStates = "Snapshots and forks",
                           kRepos = "Repositories", kHost = "This host";

constexpr Command kCommands[] = {
    {"create", kWork, "Make a workspace from a repository or a local directory",
     "moorage create --repo https://github.com/acme/shop --name auth\n"
     "moorage create --from . --name try-1",
     create_command},
    {"ls", kWork, "List the workspaces", "moorage ls", ls_command},
    {"show", kWork, "Tell all about one workspace", "moorage show auth", show_command},
    {"set", kWork, "Change what a workspace may do",
     "moorage set auth --idle-stop 2h --pre-stop 'make save'\nmoorage set auth --memory 8G --cpus "
     "4",
     set_command},
    {"pin", kWork, "Keep gc away from a workspace", "moorage pin auth", pin_command},
    {"unpin", kWork, "Let gc decide again", "moorage unpin auth", unpin_command},
    {"start", kWork, "Start the sandbox of a workspace", "moorage start auth", start_command},
    {"stop", kWork, "Stop the sandbox; everything is kept", "moorage stop auth", stop_command},
    {"move", kWork, "Go on in sandboxes of another backend, image or runtime",
     "moorage move auth --backend docker\nmoorage move auth --backend docker --image dev:2 "
     "--now\nmoorage move auth --backend lxc --check",
     move_command},
    {"rm", kWork, "Delete a workspace; undelete brings it back", "moorage rm auth", rm_command},
    {"undelete", kWork, "Bring a deleted workspace back", "moorage undelete auth",
     undelete_command},
    {"archive", kWork, "Put a workspace away into one verified file", "moorage archive auth",
     archive_command},
    {"unarchive", kWork, "Bring the files of an archived workspace back", "moorage unarchive auth",
     unarchive_command},
    {"export", kWork, "Write a workspace into a file, for another host",
     "moorage export auth auth.tar.zst\nmoorage export auth - | ssh other moorage import -",
     export_command},
    {"import", kWork, "Make a workspace of a file that export wrote",
     "moorage import auth.tar.zst --name auth-2", import_command},

    {"share", kWork, "Let a group of this host use a workspace, too",
     "moorage share auth --group devs\nmoorage share auth --private", share_command},

    {"snapshot", kStates, "Keep the present state of a workspace, to go back to",
     "moorage snapshot auth green\nmoorage snapshot auth --external-id checkpoint-17",
     snapshot_command},
    {"snapshots", kStates, "List the states of a workspace that are kept", "moorage snapshots auth",
     snapshots_command},
    {"restore", kStates, "Bring a workspace back to a snapshot",
     "moorage restore auth green\nmoorage restore auth sn_12 --kill", restore_command},
    {"undo", kStates, "Bring a workspace back to before a command",
     "moorage set auth --snapshot before-exec\nmoorage undo auth\nmoorage undo auth ex_40",
     undo_command},
    {"fork", kStates, "Make workspaces that go on from the state of one",
     "moorage fork auth --count 5\nmoorage fork auth try-a try-b --at green", fork_command},
    {"promote", kStates, "Let a workspace go on from the state of its fork",
     "moorage promote auth-3", promote_command},
    {"best-of", kStates, "Try something several times side by side, and keep the best",
     "moorage best-of auth --count 5 --each 'agent {i}' --test 'make check'\n"
     "moorage best-of auth --patches fixes/ --test make --promote smallest-diff\n"
     "moorage best-of bo_3",
     best_of_command},
    {"compare", kStates, "Show what differs between two workspaces",
     "moorage compare auth-1 auth-3", compare_command},
    {"tree", kStates, "Show how snapshots and forks came from each other", "moorage tree auth",
     tree_command},
    {"drop", kStates, "Give up a snapshot", "moorage drop auth green", drop_command},

    {"lease acquire", kLeases, "Be the only one who may change a workspace",
     "moorage lease acquire auth --holder agent-7", lease_acquire_command},
    {"lease show", kLeases, "Tell who holds a workspace", "moorage lease show auth",
     lease_show_command},
    {"lease keep", kLeases, "Tell the daemon that the holder lives, until killed",
     "moorage lease keep auth --lease ws_12.3 &", lease_keep_command},
    {"lease release", kLeases, "Let others in again", "moorage lease release auth --lease 3",
     lease_release_command},
    {"lease run", kLeases, "Hold a workspace while a local command runs",
     "moorage lease run auth --holder agent-7 -- my-agent auth", lease_run_command, true},

    {"exec", kRun, "Run a command in a workspace",
     "moorage exec auth -- npm test\n"
     "printf 'make -j2' | moorage exec auth -- sh -s\n"
     "moorage exec auth --detach -t -- my-agent 'split the auth module'",
     exec_command, true},
    {"shell", kRun, "Open a login shell in a workspace", "moorage shell auth", shell_command, true},
    {"run", kRun, "Run a command in a new, disposable workspace",
     "moorage run --rm --repo https://github.com/acme/shop -- make check", run_command, true},
    {"ps", kRun, "List commands: the running ones, or all of a workspace", "moorage ps",
     ps_command},
    {"top", kRun, "Watch what the workspaces do, and what waits for input", "moorage top",
     top_command},
    {"history", kRun, "List what ran in a workspace, also in a deleted one",
     "moorage history auth\nmoorage history auth -n 5", history_command},
    {"logs", kRun, "Print what a command wrote, also after it ended", "moorage logs ex_3 -f",
     logs_command},
    {"attach", kRun, "Join a running command: its output and its input", "moorage attach ex_3",
     attach_command, true},
    {"kill", kRun, "Cancel a command, or send it a signal",
     "moorage kill ex_3\nmoorage kill ex_3 HUP", kill_command},
    {"wait", kRun, "Wait for a command and exit as it did", "moorage wait ex_3", wait_command,
     true},

    {"diff", kFiles, "Print the changes of a workspace as a patch",
     "moorage diff auth > auth.patch\nmoorage diff auth --stat", diff_command},
    {"status", kFiles, "List the changed files", "moorage status auth", status_command},
    {"report", kFiles, "Write what happened in a workspace as a page for a reviewer",
     "moorage report auth > auth.md\nmoorage report auth -o auth.html", report_command},
    {"files", kFiles, "List a directory", "moorage files auth src", files_command},
    {"cat", kFiles, "Print a file", "moorage cat auth:README.md", cat_command},
    {"cp", kFiles, "Copy files or directories in or out",
     "moorage cp auth:dist ./dist\nmoorage cp notes.txt auth:/home/user/notes.txt", cp_command},

    {"repo add", kRepos, "Cache a repository", "moorage repo add https://github.com/acme/shop",
     repo_add_command},
    {"repo ls", kRepos, "List the cached repositories", "moorage repo ls", repo_ls_command},
    {"repo fetch", kRepos, "Ask upstream for news now",
     "moorage repo fetch acme/shop\nmoorage repo fetch repo_1", repo_fetch_command},
    {"repo rm", kRepos, "Drop the cache of a repository", "moorage repo rm repo_1",
     repo_rm_command},

    {"info", kHost, "Tell what this host can do", "moorage info", info_command},
    {"doctor", kHost, "Compare the database with the disk; 0: clean, 1: not",
     "moorage doctor\nmoorage doctor --fix", doctor_command},
    {"rescue export", kHost, "Save a workspace from disk when state.db cannot be read",
     "moorage rescue export auth auth.tar.zst", rescue_export_command},
    {"restore-store", kHost, "Make a store of the copy that replica.directory holds",
     "sudo moorage restore-store /mnt/replica --store /var/lib/moorage", restore_store_command},
    {"gc", kHost, "Tell what could go from the disk and why, or remove it",
     "moorage gc --explain\nmoorage gc --run --until-free 20G", gc_command},
    {"du", kHost, "Tell what takes the disk", "moorage du\nmoorage du auth", du_command},
    {"events", kHost, "Print what happened, or follow it", "moorage events -f", events_command},
    {"config show", kHost, "Print the settings and where each came from", "moorage config show",
     config_show_command},
    {"version", kHost, "Print the version", "moorage version", version_command},

    {"completion", "", "Complete words of the shell", "source <(moorage completion bash)",
     completion_command, true},
};

}  // namespace

std::span<const Command> all_commands() { return kCommands; }

}  // namespace moorage::cli
