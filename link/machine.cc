#include "link/machine.h"

#include <fcntl.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/digest.h"
#include "base/error.h"
#include "base/os/files.h"
#include "link/provider_key.h"

namespace moorage::link {
namespace {

constexpr size_t kPieceBytes = 256 << 10;
constexpr const char* kOutpost = "moorage-outpost";
constexpr const char* kWarden = "moorage-warden";

std::string file_digest(int fd) {
  base::Sha256 digest;
  for (uint64_t offset = 0;;) {
    const std::string piece = base::read_at(fd, kPieceBytes, offset);
    if (piece.empty()) break;
    digest.add(piece);
    offset += piece.size();
  }
  return base::to_hex(digest.raw());
}

// "moorage-STORE-sb_7": what comes before the last part names the store.
Labels labels_of(const base::LinkConfig& config) {
  const bool own = config.machine.empty();
  return {{kStoreLabel, config.name.substr(0, config.name.rfind('-'))},
          {kSandboxLabel, own ? config.name : config.machine},
          {kGenerationLabel, std::to_string(own ? config.generation : config.machine_generation)}};
}

}  // namespace

RemoteMachine::RemoteMachine(const base::LinkConfig& config, KeyReader key)
    : config_(config), key_(std::move(key)), labels_(labels_of(config)) {
  std::string digests;
  for (const std::string& program : {config.outpost, config.warden}) {
    const base::Fd file = base::open_file(program, O_RDONLY);
    digests += file_digest(file.get());
  }
  digest_ = base::sha256_hex(digests);
}

Driver& RemoteMachine::driver() {
  if (!driver_) {
    driver_ = make_driver(config_.driver, {.settings = config_.settings,
                                           .key = config_.key.empty() ? std::string() : key_(),
                                           .tree = config_.base.key});
  }
  return *driver_;
}

void RemoteMachine::put(const std::string& program, const std::string& name, Deadline deadline) {
  const base::Fd file = base::open_file(program, O_RDONLY);
  driver().put(machine_,
               {.path = machine_.directory + "/bin/" + digest_ + "/" + name,
                .mode = 0755,
                .content = file.get(),
                .digest = file_digest(file.get())},
               deadline);
}

std::unique_ptr<Run> RemoteMachine::connect(const Way& way, Deadline deadline) {
  const bool known = !machine_.id.empty();
  asleep_ = false;
  try {
    return run_outpost(way, deadline);
  } catch (const Error& error) {
    // It may be paused, or gone: the next try looks for it.
    machine_ = {};
    if (error.code() == Code::permission_denied) driver_.reset();
    if (error.code() != Code::not_found || (!known && way.may_create)) throw;
    if (!known) throw_why_missing(error, deadline);
  }
  return connect(way, deadline);
}

// That it is gone is believed only of the provider's list. Everything else may be missing, too.
void RemoteMachine::throw_why_missing(const Error& error, Deadline deadline) {
  if (driver_ && driver_->find(labels_, deadline).empty()) throw Error(error);
  throw Error(Code::unavailable, error.message(), error.hint());
}

std::unique_ptr<Run> RemoteMachine::run_outpost(const Way& way, Deadline deadline) {
  std::vector<std::string> argv{
      "bin/" + digest_ + "/" + kOutpost, "connect", "--name", config_.name, "--generation",
      std::to_string(config_.generation)};
  if (machine_.id.empty() && !way.put_programs) {
    if (auto run = driver().run_at_once(argv)) return run;
  }
  if (machine_.id.empty()) {
    if (!way.may_resume && driver().extend_every().count() > 0) refuse_paused(deadline);
    machine_ =
        way.may_create ? driver().make(labels_, deadline) : driver().reach(labels_, deadline);
    resumed_ = resumed_ || machine_.resumed;
  }
  if (way.put_programs) {
    // The one that is looked for comes last.
    put(config_.warden, kWarden, deadline);
    put(config_.outpost, kOutpost, deadline);
  }
  argv.front() = machine_.directory + "/" + argv.front();
  argv.insert(argv.end(), {"--dir", machine_.directory});
  return driver().run(machine_, argv, deadline);
}

// One that is not listed is reach()'s, which looks more often before it says so.
void RemoteMachine::refuse_paused(Deadline deadline) {
  const std::vector<Machine> found = driver().find(labels_, deadline);
  asleep_ = std::ranges::any_of(
      found, [](const Machine& one) { return one.state == MachineState::paused; });
  if (!asleep_) return;
  throw Error(Code::unavailable, "the provider has paused the machine, because nothing runs on it",
              "the next command resumes it");
}

void RemoteMachine::extend(Deadline deadline) {
  try {
    driver().extend(machine_, kLife, deadline);
  } catch (const Error& error) {
    resumed_ = resumed_ || error.code() == Code::conflict;
    throw;
  }
}

void RemoteMachine::let_out(Deadline deadline) {
  const base::ProviderRules& rules = config_.provider_rules;
  if (!rules.refusal.empty()) {
    throw Error(Code::unsupported,
                "the machine gives its sandbox no network namespace of its own, and its provider "
                "cannot hold the rules: " +
                    rules.refusal,
                rules.hint);
  }
  // It was made without a way out.
  if (rules.hosts.empty()) return;
  if (machine_.id.empty()) throw Error(Code::unavailable, "the machine is not reached now");
  driver().let_out(machine_, rules, deadline);
}

void RemoteMachine::pause(Deadline deadline) {
  if (!driver().can_pause())
    throw Error(Code::unsupported, "machines of this provider cannot be paused");
  if (machine_.id.empty()) throw Error(Code::unavailable, "the machine is not reached now");
  driver().pause(machine_, deadline);
}

bool RemoteMachine::exists(Deadline deadline) { return !driver().find(labels_, deadline).empty(); }

void RemoteMachine::remove(Deadline deadline) {
  // Of any generation: the name is that of one sandbox.
  const Labels ours{{kStoreLabel, labels_.at(kStoreLabel)},
                    {kSandboxLabel, labels_.at(kSandboxLabel)}};
  for (const Machine& found : driver().find(ours, deadline)) driver().end(found, deadline);
  machine_ = {};
}

std::vector<Machine> machines_of_store(const base::LinkConfig& config, Deadline deadline) {
  const auto driver =
      make_driver(config.driver, {.settings = config.settings, .key = read_provider_key(config)});
  const std::string store = labels_of(config).at(kStoreLabel);
  std::vector<Machine> found = driver->find({{kStoreLabel, store}}, deadline);
  // A provider may ignore the filter.
  std::erase_if(found, [&](const Machine& machine) {
    const auto label = machine.labels.find(kStoreLabel);
    return label == machine.labels.end() || label->second != store;
  });
  return found;
}

std::string machine_text(const Machine& machine) {
  const auto label = [&](const char* name) -> std::string {
    const auto found = machine.labels.find(name);
    return found == machine.labels.end() ? "" : found->second;
  };
  const char* state = machine.state == MachineState::running  ? "running"
                      : machine.state == MachineState::paused ? "paused"
                                                              : "gone";
  boost::json::object object{{"id", machine.id}, {"sandbox", label(kSandboxLabel)}};
  object["generation"] = label(kGenerationLabel);
  object["state"] = state;
  return boost::json::serialize(object);
}

}  // namespace moorage::link
