#include "workspace/network/networks.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "backends/envd_client.h"
#include "base/error.h"
#include "base/log.h"
#include "base/net/loopback.h"
#include "base/os/namespaces.h"
#include "base/wire/network_line.h"
#include "state_db/tables/execs.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/metrics.h"

namespace moorage::workspace {
namespace {

using base::LogLevel;
using base::SightingKind;
using std::chrono::milliseconds;

constexpr size_t kThreads = 8;
constexpr size_t kQueue = 10'000;
constexpr milliseconds kPatience{5'000};
constexpr milliseconds kPatienceAtEnd{200};
constexpr milliseconds kFirstPause{50};
constexpr milliseconds kLongestPause{5'000};
constexpr size_t kMaxInARow = 64;  // messages of an egress, before others have their turn
constexpr milliseconds kHostInterval{5'000};

struct Pair {
  Fd ours;
  Fd theirs;
};

Pair make_pair_of_sockets() {
  int ends[2];
  base::check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), "create a line");
  return {Fd(ends[0]), Fd(ends[1])};
}

}  // namespace

struct Networks::Watched {
  explicit Watched(const LiveSandbox& running) : sandbox(running) {
    sandbox.mounted.reset();  // never the last reference
  }
  std::string control_path() const { return directory + "/" + backends::kEgressSocket; }
  base::Share share() const { return {sandbox.owner, sandbox.workspace.str()}; }

  LiveSandbox sandbox;
  std::string directory;
  std::mutex serial;                 // held while its egress is started or configured
  bool over = false;                 // under `serial`
  std::atomic<bool> active = false;  // an egress runs

  std::mutex reporting;  // for the next two
  std::optional<base::NetworkUse> use;
  std::set<std::string> answering;  // questions of its egress

  // Of the loop's thread.
  Fd line;  // until an egress has one
  std::vector<Fd> questions;
  std::vector<std::unique_ptr<base::Watch>> watches;
  std::shared_ptr<backends::EgressClient> follower;
  milliseconds pause{0};  // before the next start of its egress
  std::unique_ptr<base::Timer> retry_timer;
};

Networks::Networks(Context& context, ExecWatcher& watcher, Sightings& sightings,
                   const NetworkOptions& options)
    : context_(context),
      sightings_(sightings),
      options_(options),
      supply_(context, options),
      push_judge_(context),
      streams_(context, options.egress_program),
      pool_(kThreads, kQueue),
      host_timer_(thread_.loop()),
      listens_(watcher.listen(*this)) {
  thread_.post([this] { look_at_host({}); });
}

Networks::~Networks() {
  listens_.reset();
  thread_.stop([this] {
    const std::lock_guard lock(mutex_);
    for (auto& [id, watched] : watched_) {
      watched->watches.clear();
      watched->retry_timer.reset();
    }
  });
}

// Resolvers, hosts and addresses of the host are copied into the settings of each egress.
void Networks::look_at_host(const std::string& before) {
  host_timer_.start(kHostInterval, [this, before] {
    std::string now = before;
    try {
      now = stamp_of_host();
    } catch (const Error& error) {
      base::log(LogLevel::warning, "network.host_not_seen", {{"error", error.message()}});
    }
    if (!before.empty() && now != before) refresh_all();
    look_at_host(now);
  });
}

void Networks::refresh_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, one] : watched_) {
    if (!one->active) continue;
    pool_.submit(one->share(), [this, watched = one] {
      const std::lock_guard serial(watched->serial);
      try {
        if (!watched->over) apply_to(*watched);
      } catch (const Error& error) {
        base::log(LogLevel::warning, "network.not_refreshed",
                  {{"sb", watched->sandbox.sandbox}, {"error", error.message()}});
      }
    });
  }
}

base::NetworkPolicy Networks::policy_of(const state_db::WorkspaceRow& row) const {
  return network_policy(row, context_, options_);
}

std::string Networks::summary_of(const std::string& mode) const {
  const auto found = options_.presets.find(mode);
  return found == options_.presets.end() ? "" : found->second.summary;
}

Fd Networks::make_line(base::SandboxId sandbox) {
  Pair pair = make_pair_of_sockets();
  const std::lock_guard lock(mutex_);
  lines_[sandbox] = std::move(pair.ours);
  return std::move(pair.theirs);
}

void Networks::watch(const LiveSandbox& running) {
  if (!running.backend->known_capabilities().network_rules) return;
  auto watched = std::make_shared<Watched>(running);
  watched->directory = context_.options.sandbox_directory(running.sandbox.str());
  {
    const std::lock_guard lock(mutex_);
    if (auto line = lines_.extract(running.sandbox); !line.empty())
      watched->line = std::move(line.mapped());
    watched_[running.sandbox] = watched;
  }
  if (watched->line) return thread_.post([this, watched] { watch_questions(watched); });
  pool_.submit(watched->share(), [this, watched] { adopt(watched); });
}

void Networks::forget(base::SandboxId sandbox) {
  WatchedPtr watched;
  {
    const std::lock_guard lock(mutex_);
    lines_.erase(sandbox);
    auto found = watched_.extract(sandbox);
    if (found.empty()) return;
    watched = std::move(found.mapped());
  }
  {
    const std::lock_guard lock(watched->serial);
    watched->over = true;
  }
  thread_.post([watched] {
    watched->watches.clear();
    watched->retry_timer.reset();
    watched->follower.reset();
    watched->line.reset();
  });
}

// A sandbox that an earlier daemon started.
void Networks::adopt(const WatchedPtr& watched) {
  const std::lock_guard lock(watched->serial);
  if (watched->over) return;
  try {
    sightings_.recall(watched->sandbox);
    if (take_over_egress(watched)) return;
    // Also sets up sandboxes of releases without a network; one on another machine has set up its
    // own, and its process here has the host's.
    if (!watched->sandbox.backend->known_capabilities().remote)
      base::in_network_namespace(watched->sandbox.init, base::set_up_sandbox_network);
    auto pair = std::make_shared<Pair>(make_pair_of_sockets());
    backends::EnvdClient warden(watched->sandbox.endpoint);
    if (!warden.set_network_line(pair->theirs.get(), kPatience)) {
      base::log(LogLevel::info, "network.needs_restart", {{"sb", watched->sandbox.sandbox}});
      return;
    }
    thread_.post([this, watched, pair] {
      watched->line = std::move(pair->ours);
      watch_questions(watched);
    });
  } catch (const Error& error) {
    base::log(LogLevel::warning, "network.not_adopted",
              {{"sb", watched->sandbox.sandbox}, {"error", error.message()}});
    thread_.post([this, watched] { retry(watched); });
  }
}

bool Networks::take_over_egress(const WatchedPtr& watched) {
  try {
    auto client = std::make_shared<backends::EgressClient>(watched->control_path());
    if (!client->shares_a_protocol(kPatience)) return false;
    supply_.configure(watched->sandbox, *client, supply_.settings_of(watched->sandbox.workspace));
    client->follow(0, kPatience);
    watched->active = true;
    thread_.post([this, watched, client] { follow(watched, client); });
    return true;
  } catch (const Error& error) {
    if (error.code() != Code::unavailable && error.code() != Code::not_found) throw;
    return false;
  }
}

// Runs it on the pool, unless it is on its way: an egress repeats its questions.
void Networks::answer_once(const WatchedPtr& watched, const std::string& question,
                           const std::function<void()>& work) {
  {
    const std::lock_guard lock(watched->reporting);
    if (!watched->answering.insert(question).second) return;
  }
  pool_.submit(watched->share(), [watched, question, work] {
    work();
    const std::lock_guard lock(watched->reporting);
    watched->answering.erase(question);
  });
}

void Networks::watch_questions(const WatchedPtr& watched) {
  watched->watches.clear();
  watched->watches.push_back(
      std::make_unique<base::Watch>(thread_.loop(), watched->line.get(), EPOLLIN,
                                    [this, watched](uint32_t) { take_resolver(watched); }));
}

// The warden's sockets: looked at for whether something waits in them, never read here.
void Networks::take_resolver(const WatchedPtr& watched) {
  watched->watches.clear();
  watched->questions.clear();
  base::Received received;
  try {
    received = base::receive_with_fds(watched->line.get(), base::kMaxLineMessage,
                                      base::kMaxResolverSockets);
  } catch (const Error&) {
    received = {};
  }
  if (received.bytes != base::kLineDns || received.fds.size() < 2) {
    base::log(LogLevel::warning, "network.no_resolver", {{"sb", watched->sandbox.sandbox}});
    return;
  }
  watched->questions.push_back(std::move(received.fds[0]));
  watched->questions.push_back(std::move(received.fds[1]));
  for (const Fd& question : watched->questions) {
    watched->watches.push_back(std::make_unique<base::Watch>(thread_.loop(), question.get(),
                                                             EPOLLIN, [this, watched](uint32_t) {
                                                               watched->watches.clear();
                                                               watched->questions.clear();
                                                               watched->line.reset();
                                                               start_egress(watched);
                                                             }));
  }
}

void Networks::start_egress(const WatchedPtr& watched) {
  pool_.submit(watched->share(), [this, watched] {
    const std::lock_guard lock(watched->serial);
    if (watched->over) return;
    try {
      // It may only have dropped us, because we read too slowly.
      if (take_over_egress(watched)) return;
      watched->sandbox.backend->kill_egress(watched->sandbox.name);  // one of another release
      begin_egress(watched);
    } catch (const Error& error) {
      watched->active = false;
      base::log(LogLevel::warning, "network.not_started",
                {{"sb", watched->sandbox.sandbox}, {"error", error.message()}});
      thread_.post([this, watched] { retry(watched); });
    }
  });
}

void Networks::begin_egress(const WatchedPtr& watched) {
  const LiveSandbox& sandbox = watched->sandbox;
  {
    const Fd listener = backends::listen_egress(watched->control_path());
    sandbox.backend->start_egress(sandbox.name, listener.get());
  }
  sightings_.restart(sandbox.sandbox);
  auto client = std::make_shared<backends::EgressClient>(watched->control_path());
  supply_.configure(sandbox, *client, supply_.settings_of(sandbox.workspace));
  watched->active = true;  // before its first answer, which may end a command
  const Pair pair = make_pair_of_sockets();
  client->set_line(pair.ours.get(), kPatience);
  backends::EnvdClient(sandbox.endpoint).set_network_line(pair.theirs.get(), kPatience);
  client->follow(0, kPatience);
  base::log(LogLevel::info, "network.started", {{"sb", sandbox.sandbox}});
  thread_.post([this, watched, client] { follow(watched, client); });
}

// On the loop's thread.
void Networks::follow(const WatchedPtr& watched, std::shared_ptr<backends::EgressClient> client) {
  watched->watches.clear();
  watched->follower = std::move(client);
  watch_follower(watched);
}

// One reader at a time, so that an egress which sends without end fills only its own socket.
void Networks::watch_follower(const WatchedPtr& watched) {
  if (!watched->follower) return;
  watched->watches.push_back(std::make_unique<base::Watch>(
      thread_.loop(), watched->follower->fd(), EPOLLIN, [this, watched](uint32_t) {
        watched->watches.clear();
        pool_.submit(watched->share(), [this, watched, client = watched->follower] {
          const bool lives = read_news(watched, *client);
          thread_.post([this, watched, lives] { lives ? watch_follower(watched) : lost(watched); });
        });
      }));
}

void Networks::count(Watched& watched, const base::NetworkUse& use) {
  base::NetworkUse before;
  {
    const std::lock_guard lock(watched.reporting);
    before = watched.use.value_or(base::NetworkUse{});
    watched.use = use;
  }
  Metrics& metrics = context_.metrics;
  // A new egress counts from 0.
  const auto add = [](base::Counter& counter, uint64_t now, uint64_t then) {
    counter.add(now >= then ? now - then : now);
  };
  add(metrics.network_connected, use.connected, before.connected);
  add(metrics.network_bytes_in, use.bytes_in, before.bytes_in);
  add(metrics.network_bytes_out, use.bytes_out, before.bytes_out);
  add(metrics.network_refused, use.refused, before.refused);
  add(metrics.network_over_limit, use.over_limit, before.over_limit);
}

uint64_t Networks::open_connections() const {
  const std::lock_guard lock(mutex_);
  uint64_t open = 0;
  for (const auto& [id, watched] : watched_) {
    const std::lock_guard reporting(watched->reporting);
    if (watched->active && watched->use) open += watched->use->connections;
  }
  return open;
}

void Networks::take_news(const WatchedPtr& watched, const backends::EgressClient::News& news) {
  using Client = backends::EgressClient;
  const auto answer = [this, &watched](const std::string& what, auto& by, auto how, auto asked) {
    answer_once(watched, what, [watched, &by, how, asked] {
      (by.*how)(watched->sandbox, watched->control_path(), asked);
    });
  };
  if (const auto* use = std::get_if<base::NetworkUse>(&news)) return count(*watched, *use);
  if (const auto* need = std::get_if<Client::Need>(&news))
    return answer("need " + need->credential, supply_, &EgressSupply::give_secret,
                  need->credential);
  if (const auto* push = std::get_if<base::PushQuestion>(&news))
    return answer("push " + std::to_string(push->id), push_judge_, &PushJudge::answer, *push);
  if (const auto* git = std::get_if<Client::Stream>(&news))
    return answer("git " + std::to_string(git->number), streams_, &GitStreams::give, *git);
  const auto& sighting = std::get<base::Sighting>(news);
  sightings_.record(watched->sandbox, sighting, exec_of(*watched, sighting.cgroup));
}

// False: it ended, or sent nonsense.
bool Networks::read_news(const WatchedPtr& watched, backends::EgressClient& client) {
  try {
    for (size_t n = 0; n < kMaxInARow; ++n) {
      const auto news = client.next();
      if (!news) return true;
      take_news(watched, *news);
    }
    return true;
  } catch (const Error& error) {
    base::log(LogLevel::info, "network.egress_lost",
              {{"sb", watched->sandbox.sandbox}, {"error", error.message()}});
    return false;
  }
}

// On the loop's thread.
void Networks::lost(const WatchedPtr& watched) {
  watched->watches.clear();
  watched->follower.reset();
  watched->active = false;
  retry(watched);
}

// On the loop's thread. An egress that keeps ending is started again more and more slowly.
void Networks::retry(const WatchedPtr& watched) {
  if (!base::process_alive(watched->sandbox.init)) return;
  if (!watched->retry_timer) watched->retry_timer = std::make_unique<base::Timer>(thread_.loop());
  watched->retry_timer->start(watched->pause, [this, watched] { start_egress(watched); });
  watched->pause = std::clamp(watched->pause * 2, kFirstPause, kLongestPause);
}

size_t Networks::apply(base::WorkspaceId workspace) {
  std::vector<WatchedPtr> all;  // two during a move
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, one] : watched_) {
      if (one->sandbox.workspace == workspace) all.push_back(one);
    }
  }
  size_t cut = 0;
  for (const WatchedPtr& watched : all) {
    const std::lock_guard lock(watched->serial);
    cut += apply_to(*watched);
  }
  return cut;
}

void Networks::apply_to_owner(uint32_t uid) {
  std::set<base::WorkspaceId> workspaces;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, one] : watched_) {
      if (one->sandbox.owner == uid) workspaces.insert(one->sandbox.workspace);
    }
  }
  for (const base::WorkspaceId workspace : workspaces) apply(workspace);
}

size_t Networks::apply_to(Watched& watched) {
  bool connecting = false;
  try {
    const base::NetworkSettings settings = supply_.settings_of(watched.sandbox.workspace);
    sightings_.reconsider(watched.sandbox.workspace, settings.policy);
    connecting = true;
    backends::EgressClient client(watched.control_path());
    connecting = false;
    return supply_.configure(watched.sandbox, client, settings);
  } catch (const Error& error) {
    const bool none = error.code() == Code::unavailable || error.code() == Code::not_found;
    if (connecting && none) return 0;  // the next one reads the new policy
    // It must not go on under the former policy. One that hung up may still run.
    base::log(LogLevel::warning, "network.killed",
              {{"sb", watched.sandbox.sandbox}, {"error", error.message()}});
    watched.sandbox.backend->kill_egress(watched.sandbox.name);
    return 0;
  }
}

std::optional<base::NetworkUse> Networks::use(base::SandboxId sandbox) const {
  WatchedPtr watched;
  {
    const std::lock_guard lock(mutex_);
    const auto found = watched_.find(sandbox);
    if (found == watched_.end()) return std::nullopt;
    watched = found->second;
  }
  const std::lock_guard lock(watched->reporting);
  return watched->use;
}

base::ExecId Networks::exec_of(const Watched& watched, uint64_t cgroup) {
  const auto running = state_db::ExecTable(context_.store).running(watched.sandbox.sandbox);
  for (const auto& exec : running) {
    const auto group = watched.sandbox.backend->exec_group(watched.sandbox.name, exec.id.str());
    if (cgroup != 0 && group->kernel_id() == cgroup) return exec.id;
  }
  return cgroup == 0 && running.size() == 1 ? running.front().id : base::ExecId{};
}

// At the end of the command, while its group exists: what it tried last may not have come yet.
std::optional<std::string> Networks::refused_host(const state_db::ExecRow& exec) {
  WatchedPtr watched;
  {
    const std::lock_guard lock(mutex_);
    const auto found = watched_.find(exec.request.sandbox);
    if (found != watched_.end() && found->second->active) watched = found->second;
  }
  if (watched) {
    const LiveSandbox& sandbox = watched->sandbox;
    const uint64_t cgroup = sandbox.backend->exec_group(sandbox.name, exec.id.str())->kernel_id();
    backends::EgressClient client(watched->control_path());
    // Without a group, all commands look the same: 0.
    const base::ExecId owner = cgroup != 0 ? exec.id : exec_of(*watched, 0);
    for (const auto& sighting : client.seen_by(cgroup, kPatienceAtEnd))
      sightings_.record(sandbox, sighting, owner);
  }
  // The follower of the command has read the whole notice already.
  const auto all = sightings_.notices(exec.id);
  return all.empty() ? std::nullopt : std::optional(all.front().substr(0, all.front().find("; ")));
}

}  // namespace moorage::workspace
