#include "link/volume/kept_tree.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/error.h"
#include "base/os/files.h"

namespace moorage::link {
namespace {

namespace json = boost::json;

constexpr size_t kMaxNoteBytes = 4096;
constexpr size_t kMostNotes = 1000;

std::string note_path(const base::LinkConfig& config) {
  return config.kept_trees + "/" + config.base.key;
}

// The oldest ones: base trees come and go.
void remove_surplus(const std::string& directory) {
  std::vector<std::pair<int64_t, std::string>> notes;  // by time
  for (const std::string& name : base::list_directory(directory)) {
    const std::string path = directory + "/" + name;
    struct stat status {};
    if (lstat(path.c_str(), &status) != 0) continue;
    notes.emplace_back(status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec, path);
  }
  std::sort(notes.begin(), notes.end());
  for (size_t i = kMostNotes; i < notes.size(); ++i) unlink(notes[i - kMostNotes].second.c_str());
}

}  // namespace

std::string new_kept_name(const base::LinkConfig& config) {
  return config.name + "-" + base::random_hex(8);
}

std::optional<KeptTree> read_kept_tree(const base::LinkConfig& config) {
  if (config.kept_trees.empty() || config.base.key.empty()) return std::nullopt;
  try {
    const auto text = base::read_file_if_exists(note_path(config), kMaxNoteBytes);
    if (!text) return std::nullopt;
    const json::value note = json::parse(*text);
    return KeptTree{json::value_to<std::string>(note.at("name")),
                    json::value_to<std::string>(note.at("digest")),
                    note.at("bytes").to_number<uint64_t>()};
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void note_kept_tree(const base::LinkConfig& config, const KeptTree& kept) {
  base::make_directories(config.kept_trees, 0700);
  const json::object note{{"name", kept.name}, {"digest", kept.digest}, {"bytes", kept.bytes}};
  base::write_file(note_path(config), json::serialize(note));
  remove_surplus(config.kept_trees);
}

}  // namespace moorage::link
