#include "backends/engine/docker_image.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os/process.h"

namespace moorage::backends {
namespace {

constexpr const char* kName = "moorage-host";
constexpr const char* kLabel = "moorage.image=host";

// Numeric ids: names may mean different ids on the engine's host.
std::string tar_of(const std::string& root, std::chrono::milliseconds deadline) {
  base::ProcessOptions options;
  options.deadline = deadline;
  options.max_output_bytes = 256 << 20;
  base::ProcessResult tar = base::run_process(
      {"tar", "--numeric-owner", "--owner=0", "--group=0", "-C", root, "-c", "."}, options);
  if (tar.ok()) return std::move(tar.output);
  throw Error(Code::unavailable, "cannot pack the skeleton of image host: " + tar.error);
}

}  // namespace

std::string DockerImage::ensure(std::chrono::milliseconds deadline) {
  const std::string root = skeleton_.ensure();  // .../DIGEST/rootfs
  const std::string place = root.substr(0, root.rfind('/'));
  const std::string tag = place.substr(place.rfind('/') + 1);
  const std::string image = std::string(kName) + ":" + tag;
  std::lock_guard lock(mutex_);
  if (engine_.has_image(image, deadline)) return image;
  engine_.import_image({kName, tag, kLabel, tar_of(root, deadline)}, deadline);
  for (const std::string& other : engine_.images(deadline)) {
    if (!other.starts_with(std::string(kName) + ":") || other == image) continue;
    try {
      engine_.remove_image(other, deadline);
    } catch (const Error& error) {  // a container uses it: a later call removes it
      base::log(base::LogLevel::debug, "docker.image_kept",
                {{"image", other}, {"reason", error.message()}});
    }
  }
  return image;
}

}  // namespace moorage::backends
