// The seam to one provider of machines: what differs between ssh, E2B and Daytona. Everything else
// is written once, in this layer. All calls block until their deadline and run on a thread that
// serves nothing else; only destructors and stop() may be called meanwhile from another one. A
// driver keeps nothing that a new process could not find again by labels.
//
// Errors say what is wrong, where, and what to do, in words for the user who waits for a start:
//   permission_denied   the key, or the account behind it, is refused
//   not_found           this machine is gone for good
//   unavailable         it cannot be reached now; a retry may help
//   resource_exhausted  a quota or limit of the provider
//   unsupported         this machine or server cannot do it; a retry will not help
//   deadline_exceeded   the time is over
// Waits for a provider (429, Retry-After, 5xx) are retry.h's, within the deadline.
//
// What a provider answers is hostile: sizes, counts and texts are bounded in the driver.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/net/provider_rules.h"
#include "base/os/fd.h"
#include "link/deadline.h"

namespace moorage::link {

using Labels = std::map<std::string, std::string>;

// The labels of every machine that we make. All three identify it; the first finds all of a store.
inline constexpr const char* kStoreLabel = "moorage-store";
inline constexpr const char* kSandboxLabel = "moorage-sandbox";        // "sb_7"
inline constexpr const char* kGenerationLabel = "moorage-generation";  // decimal

enum class MachineState { running, paused, gone };

struct Machine {
  std::string id;  // the provider's; for ssh the sandbox's name on its host
  MachineState state = MachineState::running;
  Labels labels;
  // DIR: absolute, private, exists once make() returned. The programs and all state are below it.
  std::string directory;
  bool resumed = false;  // make() or reach() found it paused
};

// A program that runs there.
class Run {
 public:
  virtual ~Run() = default;  // ends the program's stream; the program itself may go on
  // Its standard input and output: bytes, a non-blocking stream socket, owned by this object. What
  // the driver holds between the two is bounded, so a slow side makes the other one wait.
  virtual int stream() const = 0;
  // After the end of the stream: why it ended, as far as it is known. Does not block.
  virtual std::optional<Error> reason() = 0;
};

// A file to put there.
struct File {
  std::string path;  // absolute; directories above are made
  unsigned mode = 0755;
  int content = -1;    // borrowed; read with pread
  std::string digest;  // SHA-256 in hex
};

class Driver {
 public:
  virtual ~Driver() = default;

  // The machine with these labels: found, or made. Before it creates anything it looks, and again
  // after a create that got no answer. Resumes a paused one.
  virtual Machine make(const Labels& labels, Deadline deadline) = 0;
  // The same, but never creates one: not_found when several looks have found none.
  virtual Machine reach(const Labels& labels, Deadline deadline) = 0;
  // All machines of this account or host with at least these labels.
  virtual std::vector<Machine> find(const Labels& labels, Deadline deadline) = 0;
  virtual MachineState state(const Machine& machine, Deadline deadline) = 0;
  // Keeps it alive for at least so long from now. Never shortens its life. Throws conflict if it
  // was paused, and this resumed it.
  virtual void extend(const Machine& machine, std::chrono::seconds life, Deadline deadline) = 0;
  // How often extend() must be called; 0: never, the machine does not end by itself.
  virtual std::chrono::seconds extend_every() const { return std::chrono::seconds(0); }
  virtual bool can_pause() const { return false; }
  virtual void pause(const Machine& machine, Deadline deadline);
  virtual void resume(const Machine& machine, Deadline deadline);
  virtual void end(const Machine& machine, Deadline deadline) = 0;  // missing: fine
  // Opens a machine that was made with `internet` false for these hosts, and no others. Throws
  // unsupported where the provider cannot.
  virtual void let_out(const Machine& machine, const base::ProviderRules& rules, Deadline deadline);

  // argv[0] is an absolute path there. No shell, no environment of ours; an argument is any text
  // without NUL. Returns when the program was asked to start; that it did is seen by its output.
  virtual std::unique_ptr<Run> run(const Machine& machine, const std::vector<std::string>& argv,
                                   Deadline deadline) = 0;
  // The same without make(): argv[0] is below DIR, and `--dir DIR` is added. Its end says not_found
  // if it is not there. Empty where make() must come first.
  virtual std::unique_ptr<Run> run_at_once(const std::vector<std::string>& argv);
  // Does nothing if the file there has this digest. Otherwise it is replaced atomically, and its
  // digest was checked there before this returns. A cut transfer goes on where it was if it can.
  virtual void put(const Machine& machine, const File& file, Deadline deadline) = 0;
};

struct DriverOptions {
  std::string settings;  // JSON object of the provider, from the link's configuration (config.h)
  std::string key;       // the provider's secret; empty: none. Never in messages
  // The base tree whose part of a volume a new machine gets at kVolumePlace (kept_tree.h); empty:
  // none.
  std::string tree = {};
};

// One line each in drivers.cc: "ssh", "e2b", "daytona". Throws invalid_argument.
std::unique_ptr<Driver> make_driver(std::string_view provider, const DriverOptions& options);

}  // namespace moorage::link
