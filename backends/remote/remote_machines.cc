// The part of RemoteBackend that looks after machines without a keeper (machines.h).
#include <algorithm>

#include "backends/remote/link_program.h"
#include "backends/remote/remote_backend.h"
#include "base/clock.h"
#include "base/error.h"

namespace moorage::backends {

namespace {

constexpr uint32_t kReachDeadline_s = 30;

}  // namespace

std::string RemoteBackend::run_errand(const Errand& errand, const MachineNote& note,
                                      std::chrono::milliseconds deadline) {
  try {
    const Capabilities can = capabilities();  // makes the copies that machine() names
    base::LinkConfig config = machine(note);  // it may be configured no longer
    if (!can.usable) throw Error(Code::unsupported, can.reason);
    config.directory = errand.directory;
    config.start_deadline_s = std::min(config.start_deadline_s, kReachDeadline_s);
    std::string output = run_link(link_copy_, errand.command, config, deadline);
    places_.succeeded(note.place, base::system_clock().wall_ms());
    return output;
  } catch (const Error& error) {
    places_.failed(note.place, error.message());
    throw;
  }
}

std::vector<PlaceUse> RemoteBackend::places() {
  std::vector<PlaceUse> all = places_.uses();
  if (account()) {
    for (PlaceUse& place : all) place.on_stop = pauses() ? "pause" : "kill";
  }
  return all;
}

std::vector<std::string> RemoteBackend::list_there(const std::string& place,
                                                   std::chrono::milliseconds deadline) {
  // The name says which store.
  const MachineNote all{.sandbox = options_.name_prefix + "all", .driver = driver_, .place = place};
  auto names = parse_listed(run_errand({{"list"}}, all, deadline), options_.name_prefix);
  // A machine keeps the labels of the sandbox that made it.
  for (std::string& name : names) name = places_.owner_of(name);
  return names;
}

void RemoteBackend::remove_there(const MachineNote& note, std::chrono::milliseconds deadline) {
  // It may have been taken over since the caller saw the note.
  if (places_.owner_of(note.machine_name()) != note.sandbox) return;
  run_errand({{"remove"}}, note, deadline);
  places_.release(note.sandbox);
}

void RemoteBackend::leave(const std::string& sandbox) {
  kills_.forget(sandbox);
  LocalBackend::destroy(sandbox);
}

bool RemoteBackend::salvage_there(const MachineNote& note, const std::string& salvage,
                                  std::chrono::milliseconds deadline) {
  return parse_found(
      run_errand({{"salvage", "--into", salvage}, salvage + "/here"}, note, deadline));
}

}  // namespace moorage::backends
