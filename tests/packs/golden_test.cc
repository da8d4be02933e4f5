// Archives and packs that an earlier release wrote restore to the tree that they restored to then.
// A release adds its files to data/: an archive is an export of a workspace, delta packs come from
// the hidden test "[golden-packs]" of test_workspace.
#include "packs/golden.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>

#include "packs/delta_pack.h"
#include "packs/tar_fixture.h"
#include "packs/tree_restorer.h"

using namespace moorage;
using namespace moorage::packs;

namespace fs = std::filesystem;

namespace {

std::vector<std::string> golden_files(const std::string& prefix, const std::string& suffix) {
  std::vector<std::string> found;
  for (const auto& name : base::list_directory(MOORAGE_GOLDEN))
    if (name.starts_with(prefix) && name.ends_with(suffix))
      found.push_back(std::string(MOORAGE_GOLDEN) + "/" + name);
  REQUIRE(!found.empty());
  return found;
}

// With MOORAGE_WRITE_GOLDEN=1 it becomes the expected text.
void require_golden(const std::map<std::string, std::string>& nodes, const std::string& file) {
  const std::string text = golden_text(nodes);
  if (getenv("MOORAGE_WRITE_GOLDEN")) base::write_file(file, text, 0644);
  std::istringstream want(base::read_file(file));
  std::istringstream got(text);
  for (std::string line, found; std::getline(want, line);) {
    std::getline(got, found);
    REQUIRE(found == line);
  }
  REQUIRE(got.peek() == EOF);
}

// The nodes of all parts of all layers.
std::map<std::string, std::string> restored_layers(const std::string& archive) {
  const TemporaryDirectory place;
  std::map<std::string, std::string> nodes;
  std::string part;
  std::unique_ptr<LayerRestorer> restorer;
  const auto end_part = [&] {
    if (!restorer) return;
    restorer->finish();
    nodes.merge(golden_nodes(part, place.path() + "/" + part));
  };
  ArchiveReader reader(from_memory(archive), {});
  while (const ArchiveEntry* entry = reader.next()) {
    if (!entry->path.starts_with("layers/")) continue;
    const size_t layer_end = entry->path.find('/', sizeof "layers/" - 1);
    const std::string found = entry->path.substr(0, entry->path.find('/', layer_end + 1));
    if (found != part) {
      end_part();
      part = found;
      base::make_directories(place.path() + "/" + part, 0755);
      restorer = std::make_unique<LayerRestorer>(place.path() + "/" + part, part, kDiskFirstId);
    }
    restorer->take(*entry, reader);
  }
  end_part();
  return nodes;
}

}  // namespace

TEST_CASE("archives of earlier releases restore to the same layers", "[archive]") {
  for (const auto& file : golden_files("archive-", ".tar.zst")) {
    INFO(file);
    const std::string stem = file.substr(0, file.size() - sizeof ".tar.zst" + 1);
    require_golden(restored_layers(base::read_file(file)), stem + ".layers.json");
  }
}

TEST_CASE("delta packs of earlier releases restore to the same tree", "[replica]") {
  for (const auto& directory : golden_files("delta-", "")) {
    INFO(directory);
    const TemporaryDirectory place;
    base::make_directories(place.path() + "/tree", 0755);
    const TreePlaces places{{{"tree", place.path() + "/tree"}}, kDiskFirstId, 65537, {}};
    TreeRestorer restorer(places);
    for (const auto& name : base::list_directory(directory)) {
      if (!name.ends_with(".pack")) continue;
      const PackReader pack(base::open_file(directory + "/" + name, O_RDONLY));
      pack.verify();
      std::string list;
      pack.read_list([&list](std::string_view piece) { list += piece; });
      CHECK(!list.empty());
      pack.read_changes(restorer);
    }
    restorer.finish();
    // A file that grew has the time of its restoration.
    const timespec times[2] = {{1, 1}, {1'700'000'003, 123'456'789}};
    base::check(utimensat(AT_FDCWD, (place.path() + "/tree/log").c_str(), times, 0), "utimensat");
    require_golden(golden_nodes("tree", place.path() + "/tree"), directory + "/expected.json");
  }
}
