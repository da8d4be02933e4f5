// Image `host` as an engine's image: the skeleton of host_image.h, with nothing of the host's /usr,
// which is shown in each container from outside. Named by the skeleton's digest; those of former
// states of the host are removed when nothing uses them.
#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include "backends/engine_client.h"
#include "backends/host_image.h"

namespace moorage::backends {

class DockerImage {
 public:
  DockerImage(const EngineClient& engine, std::string images_directory)
      : engine_(engine), skeleton_(std::move(images_directory)) {}

  // The engine's name of it; given to the engine if it is not there.
  std::string ensure(std::chrono::milliseconds deadline);

 private:
  const EngineClient& engine_;
  HostImage skeleton_;
  std::mutex mutex_;
};

}  // namespace moorage::backends
