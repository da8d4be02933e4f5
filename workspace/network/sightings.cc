#include "workspace/network/sightings.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "state_db/store.h"
#include "state_db/tables/execs.h"
#include "state_db/tables/workspaces.h"

namespace moorage::workspace {
namespace {

using base::LogLevel;
using base::Sighting;
using base::SightingKind;

constexpr int64_t kHourMs = 3'600'000;

std::string place_text(const Sighting& sighting) {
  if (sighting.host.empty()) return "many hosts";
  return sighting.host + (sighting.port == 0 ? "" : ":" + std::to_string(sighting.port));
}

std::string_view event_kind(SightingKind kind) {
  switch (kind) {
    case SightingKind::reached:
      return "network.reached";
    case SightingKind::refused:
      return "network.refused";
    case SightingKind::unreachable:
      return "network.unreachable";
  }
  return "network.refused";
}

std::string event_text(const Sighting& sighting) {
  return place_text(sighting) + ": " + sighting.why +
         (sighting.quiet ? " (expected; programs work without it)" : "");
}

std::string record_of(std::string_view kind, base::ExecId exec, const std::string& text) {
  return std::string(kind) + " " + exec.str() + " " + text;
}

bool still_refused(const base::NetworkPolicy& policy, const Sighting& sighting) {
  if (sighting.host.empty()) return false;
  const auto ports = base::allowed_ports(policy, sighting.host);
  return sighting.port == 0 ? ports.empty()
                            : std::find(ports.begin(), ports.end(), sighting.port) == ports.end();
}

}  // namespace

void Sightings::recall(const LiveSandbox& sandbox) {
  constexpr int64_t kLately = 20'000;
  constexpr int64_t kMost = 1'000;
  const int64_t last = context_.store.last_event();
  const auto events =
      context_.store.events(std::max<int64_t>(0, last - kLately), kMost, sandbox.workspace);
  const auto its = recorded(sandbox.sandbox);
  const std::lock_guard lock(its->mutex);
  for (const auto& event : events) {
    if (!event.kind.starts_with("network.") || event.subject.sandbox != sandbox.sandbox) continue;
    // Also without its command, which may have ended.
    for (const base::ExecId exec : {event.subject.exec, base::ExecId{}})
      its->by_earlier.insert(record_of(event.kind, exec, event.text));
  }
}

std::shared_ptr<Sightings::Recorded> Sightings::recorded(base::SandboxId sandbox) {
  const std::lock_guard lock(mutex_);
  return sandboxes_[sandbox].recorded;
}

void Sightings::restart(base::SandboxId sandbox) {
  const auto its = recorded(sandbox);
  const std::lock_guard lock(its->mutex);
  its->serials.clear();
}

bool Sightings::may_write(Recorded& recorded, const LiveSandbox& sandbox) const {
  const int64_t hour = context_.store.clock().wall_ms() / kHourMs;
  if (recorded.hour != hour) recorded.events = 0;
  recorded.hour = hour;
  if (++recorded.events == kMaxEvents) {
    base::log(LogLevel::warning, "network.many_hosts",
              {{"sb", sandbox.sandbox}, {"effect", "no more are recorded within this hour"}});
  }
  return recorded.events < kMaxEvents;
}

void Sightings::record(const LiveSandbox& sandbox, const Sighting& sighting, base::ExecId exec) {
  try {
    const std::string_view kind = event_kind(sighting.kind);
    const std::string text = event_text(sighting);
    const auto its = recorded(sandbox.sandbox);
    const std::lock_guard lock(its->mutex);
    if (!its->serials.insert(sighting.serial).second) return;
    if (its->serials.size() > kMaxSerials) its->serials.erase(its->serials.begin());
    if (!its->by_earlier.contains(record_of(kind, exec, text)) && may_write(*its, sandbox)) {
      context_.store.transaction([&] {
        context_.store.add_event(std::string(kind),
                                 {{}, sandbox.workspace, sandbox.sandbox, exec, {}}, text);
      });
    }
    if (sighting.kind == SightingKind::reached || sighting.quiet || exec.value == 0) return;
    note(sandbox, sighting, exec);
  } catch (const Error& error) {
    base::log(LogLevel::warning, "network.not_recorded",
              {{"sb", sandbox.sandbox}, {"error", error.message()}});
  }
}

void Sightings::note(const LiveSandbox& sandbox, const Sighting& sighting, base::ExecId exec) {
  std::string text = place_text(sighting) + " is not reachable: " + sighting.why;
  bool waits = false;
  if (sighting.kind == SightingKind::refused) {
    const auto row = state_db::WorkspaceTable(context_.store).get(sandbox.workspace);
    text = place_text(sighting) + " was refused: " + sighting.why;
    // A rule does not help against a refusal despite one: of an address, of a wrong TLS name.
    waits = still_refused(network_policy(row, context_, options_), sighting);
    if (waits) text += "; allow it: moorage net allow " + row.name + " " + place_text(sighting);
  }
  {
    const std::lock_guard lock(mutex_);
    Command& command = commands_[exec];
    command.sandbox = sandbox.sandbox;
    command.workspace = sandbox.workspace;
    if (command.notices.size() >= kMaxNotices) return;
    command.notices.push_back(std::move(text));
    if (waits && !command.over) command.refused.push_back(sighting);
  }
  // It may have ended before anything was noted of it.
  if (state_db::ExecTable(context_.store).get(exec).state != state_db::ExecState::running)
    ended(exec);
  watcher_.wake_readers(exec);
}

void Sightings::forget(base::SandboxId sandbox) {
  const std::lock_guard lock(mutex_);
  sandboxes_.erase(sandbox);
  std::erase_if(commands_, [sandbox](const auto& one) { return one.second.sandbox == sandbox; });
}

std::vector<std::string> Sightings::notices(base::ExecId exec) const {
  const std::lock_guard lock(mutex_);
  const auto found = commands_.find(exec);
  return found == commands_.end() ? std::vector<std::string>{} : found->second.notices;
}

std::optional<Blocked> Sightings::blocked(base::WorkspaceId workspace) const {
  const std::lock_guard lock(mutex_);
  for (auto one = commands_.rbegin(); one != commands_.rend(); ++one) {
    const Command& command = one->second;
    if (command.workspace == workspace && !command.refused.empty())
      return Blocked{place_text(command.refused.back()), one->first};
  }
  return std::nullopt;
}

void Sightings::reconsider(base::WorkspaceId workspace, const base::NetworkPolicy& policy) {
  const std::lock_guard lock(mutex_);
  for (auto& [exec, command] : commands_) {
    if (command.workspace != workspace) continue;
    std::erase_if(command.refused,
                  [&policy](const Sighting& sighting) { return !still_refused(policy, sighting); });
  }
}

void Sightings::ended(base::ExecId exec) {
  const std::lock_guard lock(mutex_);
  const auto found = commands_.find(exec);
  if (found == commands_.end() || std::exchange(found->second.over, true)) return;
  found->second.refused.clear();
  auto& ended = sandboxes_[found->second.sandbox].ended;
  ended.push_back(exec);
  if (ended.size() <= kKeptAfterEnd) return;
  commands_.erase(ended.front());
  ended.pop_front();
}

}  // namespace moorage::workspace
