// The few Docker Engine API calls (version 1.40 and later; docs.docker.com/engine/api) that a
// sandbox needs, over the engine's unix socket. Podman's compatible socket accepts the same. Each
// call uses its own connection and a deadline. Throws unavailable when the engine is unreachable or
// fails, unknown_outcome when it got a request but gave no answer in time; otherwise the engine's
// message, with a code from its status: not_found, already_exists, unsupported (400).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"

namespace moorage::backends {

struct EngineInfo {
  std::string default_runtime;                  // "runc"
  std::map<std::string, std::string> runtimes;  // name: path of the program, or empty
  bool is_podman = false;
  bool seccomp = false;  // supports call filters
  // userns-remap: the host id of every container's root.
  std::optional<uint32_t> first_host_id{};
};

class EngineClient {
 public:
  using Deadline = std::chrono::milliseconds;

  explicit EngineClient(std::string socket) : socket_(std::move(socket)) {}

  void ping(Deadline deadline) const;  // throws without an answer
  EngineInfo info(Deadline deadline) const;
  // By name or digest, as a person would write it.
  bool has_image(const std::string& image, Deadline deadline) const;
  std::optional<ImageIdentity> find_image(const std::string& image, Deadline deadline) const;
  // Where the image declares writable volumes, which an engine would put on its own disk.
  std::vector<std::string> image_volumes(const std::string& image, Deadline deadline) const;
  std::vector<std::string> images(Deadline deadline) const;  // names with tags, sorted
  // Makes `name:tag` from a tar of a root file system, with one label.
  struct Import {
    std::string name;
    std::string tag;
    std::string label;
    std::string tar;
  };
  void import_image(const Import& image, Deadline deadline) const;
  void remove_image(const std::string& image, Deadline deadline) const;  // in use: conflict
  // `body` is the request's JSON object. already_exists: the name is taken.
  void create(const std::string& name, const std::string& body, Deadline deadline) const;
  void start(const std::string& name, Deadline deadline) const;
  pid_t init_pid(const std::string& name, Deadline deadline) const;  // 0: not running
  // Including anonymous volumes, running or not; missing is fine.
  void remove(const std::string& name, Deadline deadline) const;
  std::vector<std::string> containers(const std::string& label, Deadline deadline) const;

 private:
  bool is_podman(Deadline deadline) const;
  std::string call(const std::string& method, const std::string& path, const std::string& body,
                   Deadline deadline) const;
  const std::string socket_;
};

}  // namespace moorage::backends
