#include "backends/registry.h"

#include <array>
#include <string_view>

#include "base/error.h"
#include "base/os/files.h"

// The table. A line declares the maker, make_NAME_backend, and registers it under its name.
#define MOORAGE_BACKENDS(BACKEND) \
  BACKEND(lxc)                    \
  BACKEND(docker)                 \
  BACKEND(process)                \
  BACKEND(ssh)                    \
  BACKEND(e2b)                    \
  BACKEND(daytona)

namespace moorage::backends {

#define DECLARE(name) std::unique_ptr<Backend> make_##name##_backend(const BackendOptions&);
MOORAGE_BACKENDS(DECLARE)

std::string_view isolation_name(Isolation isolation) {
  constexpr std::array<std::string_view, 5> kNames{"none", "container", "userns", "gvisor", "vm"};
  return kNames.at(static_cast<size_t>(isolation));
}

void Backend::attach(const std::string& name, const std::vector<FileLayer>&) {
  throw Error(Code::internal, name + " runs on this host: its mounts are its files");
}

Isolation isolation_of(const Capabilities& can, const std::string& runtime) {
  if (runtime.empty()) return can.isolation;
  const auto found = can.runtimes.find(runtime);
  if (found != can.runtimes.end()) return found->second;
  std::string known;
  for (const auto& [name, isolation] : can.runtimes) known += (known.empty() ? "" : ", ") + name;
  throw Error(Code::unsupported, "there is no runtime '" + runtime + "'",
              known.empty() ? "this backend or its engine has only its default runtime"
                            : "available runtimes: " + known);
}

std::vector<std::string> backend_names() {
#define NAME(name) #name,
  return {MOORAGE_BACKENDS(NAME)};
}

Registry::Registry(const BackendOptions& options) : prefix_(options.name_prefix) {
  base::make_directories(options.images_directory);
#define ENTER(name) put(#name, make_##name##_backend(options));
  MOORAGE_BACKENDS(ENTER)
}

Backend* Registry::find(const std::string& name) {
  const auto found = backends_.find(name);
  return found == backends_.end() ? nullptr : found->second.get();
}

Backend& Registry::get(const std::string& name) {
  if (Backend* backend = find(name)) return *backend;
  std::string known;
  for (const auto& each : names()) known += (known.empty() ? "" : ", ") + each;
  throw Error(Code::not_found, "there is no backend '" + name + "'",
              "available backends: " + known);
}

std::vector<Backend*> Registry::all() {
  std::vector<Backend*> all;
  for (const auto& [name, backend] : backends_) all.push_back(backend.get());
  return all;
}

std::vector<std::string> Registry::names() const {
  std::vector<std::string> names;
  for (const auto& [name, backend] : backends_) names.push_back(name);
  return names;
}

void Registry::put(const std::string& name, std::unique_ptr<Backend> backend) {
  backends_[name] = std::move(backend);
}

}  // namespace moorage::backends
