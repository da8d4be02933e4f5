#include "workspace/recovery/machines.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "backends/registry.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "state_db/store.h"
#include "state_db/tables/sandboxes.h"
#include "state_db/tables/workspaces.h"

namespace moorage::workspace {
namespace {

using base::LogLevel;
using std::chrono::milliseconds;

constexpr size_t kAskers = 8;
constexpr size_t kVisitors = 16;  // most of them wait for a machine

// Names of sandboxes that are not destroyed. Read after the machines: a row is written before its
// machine.
std::set<std::string> living(Context& context) {
  std::set<std::string> names;
  for (const auto& row : state_db::SandboxTable(context.store).not_destroyed())
    names.insert(row.name);
  return names;
}

// Paused for the next sandbox of a workspace that may still have one there.
bool waits(Context& context, const UnusedMachine& machine) {
  if (!machine.note.kept || !machine.configured) return false;
  const auto id = base::WorkspaceId::parse(machine.note.workspace);
  const auto row = id ? state_db::WorkspaceTable(context.store).find(*id) : std::nullopt;
  return row && row->state == state_db::WorkspaceState::ready && row->backend == machine.backend;
}

backends::Machines* machines_of(Context& context, const std::string& backend) {
  auto* found = context.backends.find(backend);
  return found ? found->machines() : nullptr;
}

}  // namespace

MachineSweep::MachineSweep(Context& context, Salvage& salvage, const Rules& rules)
    : context_(context),
      salvage_(salvage),
      rules_(rules),
      askers_(kAskers, std::numeric_limits<size_t>::max()),
      visitors_(kVisitors, std::numeric_limits<size_t>::max()) {}

std::vector<UnusedMachine> MachineSweep::unused() {
  std::vector<UnusedMachine> found;
  for (const std::string& name : context_.backends.names()) {
    backends::Machines* machines = machines_of(context_, name);
    if (!machines) continue;
    std::set<std::string> places;
    for (const auto& place : machines->places()) places.insert(place.name);
    for (auto& note : machines->notes()) {
      const bool configured = places.contains(note.place);
      found.push_back({.backend = name, .note = std::move(note), .configured = configured});
    }
  }
  if (found.empty()) return found;
  const auto names = living(context_);
  std::erase_if(found, [&](const auto& one) {
    return names.contains(one.note.sandbox) || waits(context_, one);
  });
  for (auto& one : found) one.left = left_machine(context_, one.backend, one.note);
  return found;
}

std::vector<UnusedMachine> MachineSweep::unknown(const std::vector<PlaceAnswer>& answers) {
  std::vector<UnusedMachine> found;
  for (const PlaceAnswer& answer : answers) {
    for (const std::string& sandbox : answer.sandboxes) {
      found.push_back(
          {.backend = answer.backend,
           .note = {.sandbox = sandbox, .driver = answer.backend, .place = answer.place},
           .noted = false});
    }
  }
  if (found.empty()) return found;
  std::set<std::string> known = living(context_);
  for (const std::string& name : context_.backends.names()) {
    backends::Machines* machines = machines_of(context_, name);
    if (!machines) continue;
    for (const auto& note : machines->notes()) known.insert(note.sandbox);
  }
  std::erase_if(found, [&](const auto& one) { return known.contains(one.note.sandbox); });
  return found;
}

std::vector<PlaceAnswer> MachineSweep::ask(milliseconds patience) {
  // Outlives this call if a place does not answer.
  struct Asked {
    std::mutex mutex;
    std::condition_variable answered;
    std::vector<PlaceAnswer> answers;
    size_t missing = 0;
  };
  const auto asked = std::make_shared<Asked>();
  for (const std::string& name : context_.backends.names()) {
    backends::Machines* machines = machines_of(context_, name);
    if (!machines) continue;
    for (const auto& place : machines->places()) {
      asked->answers.push_back(
          {.backend = name, .place = place.name, .error = "it did not answer in time"});
    }
  }
  asked->missing = asked->answers.size();
  const std::vector<PlaceAnswer> questions = asked->answers;
  for (size_t n = 0; n < questions.size(); ++n) {
    askers_.submit([this, asked, n, answer = questions[n], patience]() mutable {
      try {
        answer.sandboxes =
            machines_of(context_, answer.backend)->list_there(answer.place, patience * 3 / 4);
        answer.error.clear();
      } catch (const Error& error) {
        answer.error = error.message();
        answer.hint = error.hint();
      }
      const std::lock_guard lock(asked->mutex);
      asked->answers[n] = std::move(answer);
      --asked->missing;
      asked->answered.notify_all();
    });
  }
  std::unique_lock lock(asked->mutex);
  asked->answered.wait_for(lock, patience, [&] { return asked->missing == 0; });
  return asked->answers;
}

void MachineSweep::sweep(bool now) {
  std::map<Place, bool> places;  // whether it has unused ones
  for (const std::string& name : context_.backends.names()) {
    backends::Machines* machines = machines_of(context_, name);
    if (!machines) continue;
    for (const auto& place : machines->places()) places.emplace(Place{name, place.name}, false);
  }
  if (places.empty()) return;
  for (const auto& one : unused()) {
    const auto place = places.find({one.backend, one.note.place});
    if (place != places.end()) place->second = true;
  }
  for (const auto& [place, has_unused] : places) begin(place, now, has_unused);
}

void MachineSweep::begin(const Place& place, bool now, bool has_unused) {
  const int64_t now_ms = context_.store.clock().boot_ms();
  bool list = now;
  {
    const std::lock_guard lock(mutex_);
    Visits& visits = visits_[place];
    list = list || now_ms >= visits.list_ms;
    const bool due = now || (now_ms >= visits.retry_ms && (has_unused || list));
    visits.again = visits.again || (visits.busy && now);
    if (visits.busy || !due) return;
    visits.busy = true;
  }
  try {
    visitors_.submit([this, place, scope = Scope{list, now}] { visit(place, scope); });
  } catch (const Error& error) {
    while (end(place, false, error.message())) {
    }
  }
}

void MachineSweep::visit(const Place& place, Scope scope) {
  for (bool again = true; again; scope = {.list = true, .now = true}) {
    std::string trouble;
    try {
      remove_all(place, scope);
    } catch (const Error& error) {
      trouble = error.message();
    }
    again = end(place, scope.list && trouble.empty(), trouble);
  }
}

void MachineSweep::remove_all(const Place& place, Scope scope) {
  backends::Machines& machines = *machines_of(context_, place.first);
  std::vector<UnusedMachine> found = unused();
  std::erase_if(found, [&](const auto& one) {
    return one.backend != place.first || one.note.place != place.second;
  });
  const bool salvages =
      std::any_of(found.begin(), found.end(), [](const auto& one) { return one.left.has_value(); });
  // Also shows in a short time whether it answers at all.
  if (scope.list || salvages) {
    PlaceAnswer answer{.backend = place.first, .place = place.second};
    answer.sandboxes = machines.list_there(place.second, rules_.deadline);
    for (auto& one : unknown({answer})) found.push_back(std::move(one));
  }
  std::string trouble;
  for (const auto& one : found) {
    try {
      remove(one, scope.now);
    } catch (const Error& error) {
      if (!one.left) throw;
      trouble = error.message();  // perhaps of this machine alone
    }
  }
  salvage_.finish_all();
  if (!trouble.empty()) throw Error(Code::unavailable, trouble);
}

void MachineSweep::remove(const UnusedMachine& one, bool now) {
  salvage_.fetch(one.backend, one.note, {.again = now, .deadline = rules_.salvage_deadline});
  machines_of(context_, one.backend)->remove_there(one.note, rules_.deadline);
  base::log(LogLevel::info, "machine.removed",
            {{"name", one.note.sandbox}, {"backend", one.backend}, {"place", one.note.place}});
  salvage_.finish(one.note.sandbox);
}

bool MachineSweep::end(const Place& place, bool listed, const std::string& error) {
  const int64_t now_ms = context_.store.clock().boot_ms();
  const std::lock_guard lock(mutex_);
  Visits& visits = visits_[place];
  visits.busy = std::exchange(visits.again, false);
  if (error.empty()) {
    visits.pause_ms = 0;
    visits.retry_ms = 0;
    if (listed) visits.list_ms = now_ms + rules_.list_every_ms;
  } else {
    visits.pause_ms =
        std::clamp(visits.pause_ms * 2, rules_.first_pause_ms, rules_.longest_pause_ms);
    visits.retry_ms = now_ms + visits.pause_ms;
  }
  if (error != visits.error && !error.empty()) {
    base::log(LogLevel::warning, "machine.place",
              {{"backend", place.first}, {"place", place.second}, {"error", error}});
  }
  visits.error = error;
  ended_.notify_all();
  return visits.busy;
}

bool MachineSweep::wait(milliseconds patience) {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, patience, [&] {
    return std::none_of(visits_.begin(), visits_.end(),
                        [](const auto& each) { return each.second.busy; });
  });
}

}  // namespace moorage::workspace
