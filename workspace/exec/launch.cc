#include "workspace/exec/launch.h"

#include <fcntl.h>

#include <csignal>

#include "backends/envd_client.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/wire/journal_middle.h"
#include "workspace/context/certificates.h"
#include "workspace/context/credentials.h"
#include "workspace/context/git_author.h"
#include "workspace/exec/ask_about.h"
#include "workspace/exec/evidence.h"

namespace moorage::workspace {
namespace {

MOORAGE_CRASH_POINT(after_journal, "exec.after_journal");

constexpr std::chrono::milliseconds kWardenDeadline{10'000};

// Starts from an empty environment; the request's own values win.
std::map<std::string, std::string> full_environment(const state_db::NewExec& request,
                                                    const state_db::WorkspaceRow& workspace) {
  const bool root = request.user == "root";
  std::map<std::string, std::string> environment = request.environment;
  environment.insert({
      {"PATH",
       "/home/user/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
      {"HOME", root ? "/root" : "/home/user"},
      {"USER", request.user},
      {"LOGNAME", request.user},
      {"SHELL", "/bin/bash"},
      {"LANG", "C.UTF-8"},
      {"TERM", request.terminal ? "xterm-256color" : "dumb"},
      {"MOORAGE_WORKSPACE", workspace.name},
  });
  return environment;
}

// Commits are by the person who runs the command, also in a shared workspace. Root may use the
// repositories of the sandbox's user, who may become root anyway.
std::map<std::string, std::string> git_variables(const Options& options,
                                                 const state_db::NewExec& request,
                                                 const std::optional<base::GitIdentity>& author) {
  std::map<std::string, std::string> variables =
      author ? author_variables(*author) : git_author_of(request.owner_uid);
  variables.merge(author_variables(options.git_author));
  if (request.user == "root") {
    variables.insert({{"GIT_CONFIG_COUNT", "1"},
                      {"GIT_CONFIG_KEY_0", "safe.directory"},
                      {"GIT_CONFIG_VALUE_0", "*"}});
  }
  return variables;
}

// Enough for the output of a short command and the record of its end.
constexpr off_t kJournalRoom = 4096;

// Makes the journal file outside every sandbox. It is append-only where the file system supports
// that: then even a process inside that gets the descriptor cannot change recorded output. Its
// first block is allocated up front, so that `rm` still runs and ends on a full disk.
base::Fd make_journal(const std::string& directory) {
  base::make_directories(directory);
  base::Fd file =
      base::open_file(directory + "/output", O_WRONLY | O_APPEND | O_CREAT | O_EXCL, 0600);
  if (fallocate(file.get(), FALLOC_FL_KEEP_SIZE, 0, kJournalRoom) < 0 && errno != EOPNOTSUPP) {
    base::throw_errno("allocate the journal");
  }
  base::set_append_only(file.get(), true);
  return file;
}

}  // namespace

void ExecLauncher::launch(const state_db::ExecRow& exec, const state_db::WorkspaceRow& workspace,
                          const LiveSandbox& running, const LaunchOptions& options) {
  const auto& request = exec.request;
  const base::Fd journal = make_journal(journal_directory(context_.options, workspace.id, exec.id));
  const auto group = running.backend->exec_group(running.name, exec.id.str());
  watcher_.watch_exec(exec, options.sync, count_refusals(running, *group));
  after_journal.pass();

  const std::vector<base::Fd> joins = group->join_fds();
  const base::Fd kill = group->kill_fd();
  backends::StartRequest start;
  start.tag = exec.id.str();
  start.argv = request.argv;
  start.environment = full_environment(request, workspace);
  if (base::path_exists(context_.options.sandbox_directory(running.sandbox.str()) + "/" +
                        kShowsCertificates))
    start.environment.merge(certificate_variables());
  const auto credentials = credentials_of(context_.store, workspace);
  start.environment.merge(placeholders_of(credentials));
  // Where git inside uses a credential, it cannot ask anybody for a password.
  if (!credentials.empty()) start.environment.emplace("GIT_TERMINAL_PROMPT", "0");
  start.environment.merge(git_variables(context_.options, request, options.author));
  start.directory = request.directory;
  start.user = request.user;
  start.input = request.input;
  start.merged = request.merged;
  if (options.terminal) start.terminal = {options.terminal->first, options.terminal->second};
  start.timeout_ms = request.timeout_ms;
  start.output_limit_bytes = context_.options.output_limit_bytes;
  start.journal_room_bytes = base::journal_room(context_.options.output_limit_bytes);
  start.journal_fd = journal.get();
  start.kill_fd = kill.get();
  for (const auto& join : joins) start.join_fds.push_back(join.get());
  backends::EnvdClient(running.endpoint).start(start, kWardenDeadline);
  // A cancel that arrived before the warden knew the command had nothing to end.
  if (state_db::ExecTable(context_.store).get(exec.id).cancel_requested)
    end_softly(exec.id, running);
}

void ExecLauncher::settle_failed_launch(const state_db::ExecRow& exec, const LiveSandbox& running,
                                        const Error& error) {
  const std::string never_started = "it was never started: " + error.message();
  if (error.code() == Code::unknown_outcome || error.code() == Code::deadline_exceeded) {
    try {
      const auto seen = ask_about(context_.live, running, {exec.id}, kWardenDeadline).front();
      if (seen == state_db::ExecSeen::known) return;
      if (seen == state_db::ExecSeen::silent) return watcher_.add_unconfirmed(exec, never_started);
    } catch (const Error&) {
      return watcher_.add_unconfirmed(exec, never_started);
    }
  }
  watcher_.settle_exec(exec, state_db::ExecCategory::not_started, never_started);
}

void ExecLauncher::end_softly(base::ExecId id, const LiveSandbox& running) {
  watcher_.kill_after(id, context_.options.stop_grace);
  try {
    backends::EnvdClient(running.endpoint).send_signal(id.str(), SIGTERM);
  } catch (const Error& error) {  // ended, or not running yet; the kill comes in any case
    base::log(base::LogLevel::debug, "exec.not_signalled",
              {{"ex", id}, {"error", error.message()}});
  }
}

}  // namespace moorage::workspace
