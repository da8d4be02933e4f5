#include <array>
#include <charconv>

#include "daemon/json/json_object.h"

namespace moorage::daemon {
namespace {

// By layers::FileType.
constexpr std::array<std::string_view, 4> kTypeNames{"file", "directory", "symlink", "other"};

JsonObject entry_object(const layers::FileEntry& entry) {
  JsonObject object;
  put_bytes(object, "name", entry.name);
  object["type"] = kTypeNames.at(static_cast<size_t>(entry.type));
  object["size_bytes"] = entry.size_bytes;
  object["mode"] = entry.mode;
  put_time(object, "mtime_at", entry.modified_ns / 1'000'000);
  object["mtime_ns"] = entry.modified_ns;
  if (entry.type == layers::FileType::symlink) put_bytes(object, "target", entry.link_target);
  return object;
}

// As git writes it, like "100644".
void put_mode(JsonObject& object, const char* name, uint32_t mode) {
  std::array<char, 16> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), mode, 8).ptr;
  if (mode != 0) object[name] = std::string(text.data(), end);
}

}  // namespace

std::string status_json(const workspace::ChangeList& list) {
  auto files = array_of(list.changes, [](const auto& change) {
    JsonObject object;
    put_bytes(object, "path", change.path);
    object["change"] = workspace::kChangeNames.at(static_cast<size_t>(change.kind));
    put_mode(object, "mode_before", change.mode_before);
    put_mode(object, "mode_after", change.mode_after);
    return object;
  });
  return text_of({{"files", std::move(files)}, {"truncated", list.truncated}});
}

std::string patch_text(workspace::Patch patch) {
  std::string text;
  for (const auto& file : patch.left_out) {
    JsonObject object;
    put_bytes(object, "path", file.path);
    object["why"] = file.why;
    object["bytes"] = file.bytes;
    if (file.removed) object["removed"] = true;
    text += "# moorage: " + text_of(object) + "\n";
  }
  return text.empty() ? std::move(patch.text) : text + patch.text;
}

std::string diff_stat_json(const std::vector<workspace::DiffStat>& stats) {
  return boost::json::serialize(array_of(stats, [](const auto& stat) {
    JsonObject object;
    put_bytes(object, "path", stat.path);
    object["added"] = stat.added;
    object["removed"] = stat.removed;
    object["binary"] = stat.binary;
    object["change"] = stat.change;
    if (!stat.left_out.empty()) object["left_out"] = stat.left_out;
    return object;
  }));
}

std::string listing_json(const std::string& path, const layers::Listing& listing) {
  JsonObject object;
  put_bytes(object, "path", path);
  object["truncated"] = listing.truncated;
  std::string text = text_of(object);
  text.back() = ',';
  text += "\"entries\":[";
  // One at a time: a hundred thousand objects take ten times the memory of their text.
  for (const auto& entry : listing.entries) {
    if (&entry != &listing.entries.front()) text += ',';
    text += text_of(entry_object(entry));
  }
  return text + "]}";
}

std::string file_json(const std::string& path, const layers::FileEntry& entry,
                      const std::string& sha256_hex) {
  JsonObject object = entry_object(entry);
  object["hash"] = "sha256-" + sha256_hex;
  put_bytes(object, "path", path);
  return text_of(object);
}

}  // namespace moorage::daemon
