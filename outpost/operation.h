// Work that takes long or may hang, in a child process of its own, so that the relay of all
// channels goes on meanwhile: mounts, walks, packs, waits. The child is a copy of this process
// without its other descriptors; it may enter namespaces and block. It dies with this process.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/os/event_loop.h"
#include "base/os/fd.h"

namespace moorage::outpost {

class Operation {
 public:
  using Work = std::function<std::string()>;  // returns the answer; may throw
  struct Outcome {
    std::string answer;
    std::optional<Error> error;
  };
  using Done = std::function<void(Outcome outcome)>;  // may destroy the operation

  struct Options {
    std::vector<int> keep_fds;  // that the work uses
    std::chrono::milliseconds deadline{600'000};
  };
  Operation(base::Loop& loop, const Work& work, const Options& options, Done done);
  ~Operation();  // kills it
  Operation(Operation&&) = delete;

 private:
  void on_readable();
  void finish(std::optional<Error> error);

  base::Loop& loop_;
  Done done_;
  pid_t pid_ = -1;
  Fd result_;
  std::string received_;
  std::unique_ptr<base::Watch> watch_;
  base::Timer deadline_;
};

// The processes of operations that are over, as far as they have ended by now.
void reap_operations();

// Runs `work` in a child that may enter namespaces, and waits. For use in an operation.
std::string run_apart(const Operation::Work& work);

// Closes all descriptors above 2 but these.
void close_all_but(std::vector<int> keep);

}  // namespace moorage::outpost
