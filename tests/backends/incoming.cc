#include "incoming.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <map>

#include "base/error.h"
#include "base/os/files.h"
#include "base/wire/link_config.h"
#include "packs/merged/applier.h"

namespace moorage::tests {

void apply_incoming(const std::string& directory, const std::string& tree,
                    const std::string& home) {
  const std::string incoming = directory + "/" + base::kIncoming;
  std::map<uint64_t, std::string> packs;
  for (const std::string& name : base::list_directory(incoming)) {
    if (name.ends_with(".pack")) packs.emplace(std::stoull(name), incoming + "/" + name);
  }
  const base::Fd tree_fd = base::open_directory(tree);
  const base::Fd home_fd = base::open_directory(home);
  packs::MergedApplier::Options options;
  options.roots.push_back({.prefix = "tree", .merged = tree_fd.get(), .uppers = {}});
  options.roots.push_back({.prefix = "home", .merged = home_fd.get(), .uppers = {}});
  for (const auto& [number, path] : packs) {
    packs::apply_pack(packs::PackReader(base::open_file(path, O_RDONLY)), options);
    base::check(unlink(path.c_str()), "remove " + path);
  }
}

}  // namespace moorage::tests
