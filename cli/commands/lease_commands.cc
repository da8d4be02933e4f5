// `lease acquire|show|keep|release|run` and `share`: who may change a workspace. The secret of an
// acquired lease is saved in a file (cli/client/kept_leases.h) or passed in the environment of the
// local command; later commands name the lease with --lease or MOORAGE_LEASE.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <thread>

#include "base/limit_ranges.h"
#include "cli/client/accounts.h"
#include "cli/client/kept_leases.h"
#include "cli/commands.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

struct LeaseOptions {
  std::string name;
  std::string holder;
  std::string ttl;
  bool takeover = false;
  bool keep_execs = false;
};

std::shared_ptr<LeaseOptions> declare_acquire(Options& options) {
  auto chosen = std::make_shared<LeaseOptions>();
  options.argument({"NAME", "", "The workspace"}, chosen->name);
  options.value({"--holder", "TEXT", "Name of the holder; default: USER@HOST"}, chosen->holder);
  options.value({"--ttl", "TIME", "The lease lapses after this silence; default: 60s"},
                chosen->ttl);
  options.flag({"--takeover", "", "Take over the lease, end the holder's commands"},
               chosen->takeover);
  options.flag({"--keep-execs", "", "With --takeover: let running commands go on"},
               chosen->keep_execs);
  return chosen;
}

std::string default_holder() {
  std::array<char, 65> host{};
  gethostname(host.data(), host.size() - 1);
  const char* user = std::getenv("USER");
  const std::string who = user != nullptr && *user != '\0' ? user : user_name(getuid());
  return who + "@" + host.data();
}

int64_t ttl_s(const std::string& text) {
  const int64_t seconds = (parse_duration_ms(text, "--ttl") + 999) / 1000;
  if (seconds >= base::kLeastTtl_s && seconds <= base::kMostTtl_s) return seconds;
  throw Error(Code::invalid_argument,
              "--ttl must be from " + format_seconds(base::kLeastTtl_s) + " to " +
                  format_seconds(base::kMostTtl_s) + ", not '" + text + "'",
              "to hold a lease for longer: moorage lease keep NAME &");
}

Json acquire(Context& context, const LeaseOptions& options) {
  JsonObject request;
  request.add("holder", options.holder.empty() ? default_holder() : options.holder);
  if (!options.ttl.empty()) request.add("ttl_s", ttl_s(options.ttl));
  if (options.takeover) request.add("takeover", true);
  if (options.keep_execs) request.add("keep_execs", true);
  return Json::parse(
      context.api().send("POST", context.workspace_path(options.name, "/lease"), request.str()));
}

// Renews the lease three times a ttl on a thread of its own, until destroyed. Calls `lost` on that
// thread, once, when the lease is over.
class Heartbeat {
 public:
  Heartbeat(std::string socket, std::string path, std::chrono::milliseconds ttl,
            std::function<void(const Error&)> lost)
      : api_(std::move(socket)),
        path_(std::move(path)),
        pause_(ttl / 3),
        lost_(std::move(lost)),
        thread_([this] { run(); }) {}
  ~Heartbeat() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    api_.connection().cancel();
    thread_.join();
  }
  Heartbeat(Heartbeat&&) = delete;

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, pause_, [this] { return done_; })) {
      lock.unlock();
      const bool over = beat();
      lock.lock();
      if (over) return;
    }
  }
  bool beat() {
    try {
      api_.send("PUT", path_);
    } catch (const Error& error) {
      // No lease lapses while the daemon restarts: retry.
      const bool over = error.code() == Code::conflict || error.code() == Code::not_found;
      if (over) lost_(error);
      return over;
    }
    return false;
  }

  Api api_;
  const std::string path_;
  const std::chrono::milliseconds pause_;
  const std::function<void(const Error&)> lost_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;  // last: uses the rest
};

void keep(Context& context, const std::string& workspace) {
  const std::string path = context.workspace_path(workspace, "/lease");
  for (int64_t ttl_s = 0;;) {
    try {
      ttl_s = Json::parse(context.api().send("PUT", path)).number("ttl_s", 60);
    } catch (const Error& error) {
      if (ttl_s == 0 || !is_lost(error)) throw;  // no lease lapses while the daemon is away
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(ttl_s * 1000 / 3));
  }
}

volatile sig_atomic_t local_pid = 0;  // of the command that gets our signals

// Ctrl-C reaches the command from the terminal; other signals are passed on. We outlive the command
// to release the lease.
void stand_back(pid_t pid) {
  local_pid = pid;
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGQUIT, SIG_IGN);
  const auto pass_on = [](int number) { kill(local_pid, number); };
  std::signal(SIGTERM, pass_on);
  std::signal(SIGHUP, pass_on);
}

// In our process group and terminal, so Ctrl-C reaches it directly.
pid_t start_local(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0], nullptr, nullptr, argv.data(), environ);
  if (error != 0) base::throw_errno("start " + command.front(), error);
  return pid;
}

int run_local(Context& context, const LeaseOptions& options) {
  if (context.command.empty()) {
    throw Error(Code::invalid_argument, "no command to run",
                "moorage lease run " + options.name + " -- COMMAND...");
  }
  const Json lease = acquire(context, options);
  base::check(setenv("MOORAGE_LEASE", lease.text("token").c_str(), 1), "set MOORAGE_LEASE");
  const std::string path = context.workspace_path(options.name, "/lease");
  std::atomic<bool> lost{false};
  int status = 0;
  Api api(context.socket);  // sends the lease that was just acquired
  try {
    const pid_t pid = start_local(context.command);
    stand_back(pid);
    const Heartbeat heartbeat(context.socket, path, std::chrono::seconds(lease.number("ttl_s", 60)),
                              [&](const Error& error) {
                                lost = true;
                                context.note(error.message() + "; ending the command");
                                kill(pid, SIGTERM);
                              });
    // Not reaped while the heartbeat may signal it, so that nobody else gets its pid.
    siginfo_t ended{};
    while (waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT) < 0) {
      if (errno != EINTR) base::throw_errno("wait for the command");
    }
    status = ended.si_code == CLD_EXITED ? ended.si_status : 128 + ended.si_status;
  } catch (const Error&) {
    api.send("DELETE", path);
    throw;
  }
  if (lost) return kFailedToRun;
  api.send("DELETE", path);
  return status;
}

void acquire_and_keep(Context& context, const LeaseOptions& options) {
  const KeptLeases kept(context.socket);
  if (!context.json) kept.prepare();
  const Json lease = acquire(context, options);
  if (context.json) return context.print_json(lease.dump());
  const std::string name = kept.keep(lease.text("token"));
  context.print_label("lease", lease.text("generation") + "   " + lease.text("holder") +
                                   ", lapses after " + lease.text("ttl_s") + " s of silence");
  context.print_label(
      "next", "export MOORAGE_LEASE=" + name + "; moorage lease keep " + options.name + " &");
}

void show(Context& context, const std::string& workspace) {
  const auto lease =
      context.parse_or_print(context.api().get(context.workspace_path(workspace, "/lease")));
  if (!lease) return;
  const std::string last = lease->number("generation") == 0
                               ? "none (never leased)"
                               : "none; lease " + lease->text("generation") + " of " +
                                     lease->text("holder") + " is over: " + lease->text("ended");
  context.print_label("holder", lease->flag("held") ? holder_line(*lease) : last);
}

// Another program of this user may hold the lease that was saved last, so it must be named.
void require_named(Context& context, const std::string& workspace) {
  const char* named = std::getenv("MOORAGE_LEASE");
  if (named != nullptr && *named != '\0') return;
  const Json found = Json::parse(context.api().get(context.workspace_path(workspace)));
  const std::string saved = KeptLeases(context.socket).of_workspace(found.text("id"));
  if (saved.empty()) return;  // the daemon says what to do
  throw Error(
      Code::invalid_argument, "say which lease of " + workspace + " you mean",
      "the last one that you acquired: moorage --lease " + saved + " lease release " + workspace);
}

void release(Context& context, const std::string& workspace) {
  require_named(context, workspace);
  context.api().send("DELETE", context.workspace_path(workspace, "/lease"));
  if (!context.json) context.print_label("released", workspace);
}

struct ShareOptions {
  std::string name;
  std::string group;
  bool is_private = false;

  void declare(Options& options) {
    options.argument({"NAME", "", "The workspace"}, name);
    options.value({"--group", "GROUP", "A group of this host whose members may use it"}, group);
    options.flag({"--private", "", "Only the owner and root may use it"}, is_private);
    const Error why(Code::invalid_argument,
                    "a workspace is shared with a group of this host, for reading and writing",
                    "moorage share NAME --group GROUP; add a person to it: usermod -aG GROUP USER");
    for (const char* option : {"--user", "--with"}) options.refused(option, true, why);
    options.refused("--read-only", false, why);
  }
};

void share(Context& context, const ShareOptions& options) {
  JsonObject request;
  if (!options.group.empty()) request.add("group", options.group);
  if (options.is_private) request.add("private", true);
  const auto workspace = context.parse_or_print(
      context.api().send("POST", context.workspace_path(options.name, "/share"), request.str()));
  if (!workspace) return;
  const std::string team = workspace->text("team");
  context.print_label("shared",
                      workspace->text("name") + (team.empty() ? "   private" : "   with " + team));
  if (workspace->has("notice")) context.note(workspace->text("notice"));
}

}  // namespace

Action lease_acquire_command(Options& options) {
  return run_with(declare_acquire(options), acquire_and_keep);
}

Action lease_show_command(Options& options) { return run_with_workspace(options, show); }
Action lease_keep_command(Options& options) { return run_with_workspace(options, keep); }
Action lease_release_command(Options& options) { return run_with_workspace(options, release); }
Action lease_run_command(Options& options) { return run_with(declare_acquire(options), run_local); }
Action share_command(Options& options) { return run_with<ShareOptions>(options, share); }

}  // namespace moorage::cli
