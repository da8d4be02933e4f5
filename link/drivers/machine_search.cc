#include "link/drivers/machine_search.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "link/retry.h"

namespace moorage::link {
namespace {

using std::chrono::milliseconds;

// When to look after a create without an answer: it may take effect late.
constexpr milliseconds kLooks[] = {milliseconds(0), milliseconds(250), milliseconds(500),
                                   milliseconds(1'000), milliseconds(2'000)};

constexpr const char* kCreatedLabel = "moorage-created";  // milliseconds since 1970

std::string created(const Machine& machine) {
  const auto found = machine.labels.find(kCreatedLabel);
  return found == machine.labels.end() ? std::string() : found->second;
}

std::optional<Machine> keep_one(const MachineSearch& search) {
  std::vector<Machine> found = search.find();
  std::erase_if(found, [](const Machine& one) { return one.state == MachineState::gone; });
  std::sort(found.begin(), found.end(), [](const Machine& a, const Machine& b) {
    return std::pair(created(b), a.id) < std::pair(created(a), b.id);
  });
  if (found.empty()) return std::nullopt;
  for (size_t i = 1; i < found.size(); ++i) search.end(found[i]);
  return found.front();
}

std::optional<Machine> look_again(const MachineSearch& search, Deadline deadline) {
  std::optional<Machine> kept;
  for (const milliseconds pause : kLooks) {
    if (kept || std::chrono::steady_clock::now() + pause >= deadline) break;
    std::this_thread::sleep_for(pause);
    kept = keep_one(search);
  }
  return kept;
}

}  // namespace

Labels labels_now(Labels labels) {
  labels[kCreatedLabel] = std::to_string(base::system_clock().wall_ms());
  return labels;
}

Machine find_existing(const MachineSearch& search, Deadline deadline) {
  const std::optional<Machine> found = look_again(search, deadline);
  if (found) return *found;
  if (std::chrono::steady_clock::now() + kLooks[std::size(kLooks) - 1] >= deadline)
    throw Error(Code::deadline_exceeded, "the provider did not list the machine in time");
  throw Error(Code::not_found, "the provider has ended the machine: it lists it no longer");
}

Machine find_or_create(const MachineSearch& search, Deadline deadline) {
  std::optional<Machine> kept = keep_one(search);
  for (Retry retry(deadline); !kept;) {
    std::optional<Error> unknown;
    try {
      const Machine created = search.create();
      kept = keep_one(search);        // another process may have created one at the same time
      return kept ? *kept : created;  // a list may be behind
    } catch (const Error& error) {
      if (error.code() != Code::unknown_outcome) throw;
      unknown = Error(Code::unavailable, error.message(), error.hint());
    }
    if (!kept) kept = look_again(search, deadline);
    if (!kept) retry.wait(*unknown);
  }
  return *kept;
}

}  // namespace moorage::link
