// Image `host` as an engine image: the skeleton of host_image.h without the host's /usr, which each
// container mounts from outside. Named by the skeleton's digest; images of earlier states of the
// host are removed when unused.
#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include "backends/engine/engine_client.h"
#include "backends/host_image.h"

namespace moorage::backends {

class DockerImage {
 public:
  DockerImage(const EngineClient& engine, std::string images_directory)
      : engine_(engine), skeleton_(std::move(images_directory)) {}

  // The engine's name for it; imports it into the engine if missing.
  std::string ensure(std::chrono::milliseconds deadline);

 private:
  const EngineClient& engine_;
  HostImage skeleton_;
  std::mutex mutex_;
};

}  // namespace moorage::backends
