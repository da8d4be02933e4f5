#include "workspace/replica/published_copy.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "base/digest.h"
#include "base/error.h"
#include "base/ids.h"
#include "base/parts.h"
#include "packs/frame_reader.h"
#include "state_db/tables/archives.h"

namespace moorage::workspace {
namespace {

constexpr const char* kWhat = "the copy of the database";
constexpr std::string_view kHead = "moorage replica copy 1\n";
constexpr std::string_view kSuffix = ".copy";
constexpr size_t kDigits = 12;
constexpr int kLevel = 1;
constexpr uint64_t kMaxManifestBytes = 256 << 20;
constexpr uint64_t kMaxDatabaseBytes = 4ULL << 30;

[[noreturn]] void damaged(const std::string& why) {
  throw Error(Code::corrupted, std::string(kWhat) + " is damaged: " + why);
}

uint64_t to_number(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) damaged("not a number");
  return number;
}

bool is_series(std::string_view name) {
  return name == "home" || base::LayerId::parse(name) || base::WorkspaceId::parse(name) ||
         base::RepoId::parse(name);
}

ReplicaSeries parse_series(const std::vector<std::string_view>& line) {
  ReplicaSeries series{to_number(line[2]), to_number(line[3]), to_number(line[4]),
                       to_number(line[5]), line[6] == "-" ? "" : std::string(line[6])};
  if (series.first == 0 || series.first > series.last || series.last > INT64_MAX)
    damaged("invalid pack numbers");
  return series;
}

// Length of the next part, in 64 bits.
uint64_t read_length(packs::FrameReader& in, uint64_t most) {
  const auto length = in.number<uint64_t>();
  if (length > most) in.refuse("an invalid length");
  return length;
}

}  // namespace

bool is_mirror_path(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  if (name.starts_with("tmp_") || name.starts_with("incoming-") || name.ends_with(".lock"))
    return false;
  for (const std::string_view file : {"HEAD", "packed-refs", "shallow", "refs", "objects"}) {
    if (path == file) return true;
  }
  return path.starts_with("refs/") || (path.starts_with("objects/") && path != "objects/info" &&
                                       !path.starts_with("objects/info/"));
}

std::string write_manifest_text(const ReplicaManifest& manifest) {
  std::string text = "owner " + manifest.owner + "\nat " + std::to_string(manifest.wall_ms) +
                     "\nids " + std::to_string(manifest.first_id) + "\n";
  for (const auto& [name, series] : manifest.series) {
    text += "series " + name;
    for (const uint64_t number : {series.first, series.last, series.whole_bytes, series.more_bytes})
      text += " " + std::to_string(number);
    text += " " + (series.mark.empty() ? "-" : series.mark) + "\n";
  }
  for (const auto& archive : manifest.archives) text += "archive " + archive + "\n";
  return text;
}

ReplicaManifest parse_manifest_text(std::string_view text) {
  ReplicaManifest manifest;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    if (end == std::string_view::npos) damaged("its manifest is truncated");
    const std::string_view whole = text.substr(at, end - at);
    const auto line = base::split(whole, ' ');
    at = end + 1;
    if (line[0] == "owner") {
      manifest.owner = whole.substr(std::min<size_t>(whole.size(), 6));
    } else if (line[0] == "at" && line.size() == 2) {
      manifest.wall_ms = static_cast<int64_t>(to_number(line[1]));
    } else if (line[0] == "ids" && line.size() == 2) {
      manifest.first_id = static_cast<uint32_t>(to_number(line[1]));
    } else if (line[0] == "series" && line.size() == 7 && is_series(line[1])) {
      manifest.series[std::string(line[1])] = parse_series(line);
    } else if (line[0] == "archive" && line.size() == 2) {
      manifest.archives.emplace(line[1]);
    } else {
      damaged("its manifest has an invalid line");
    }
  }
  return manifest;
}

std::string copy_name(uint64_t number) {
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "%012llu", static_cast<unsigned long long>(number));
  return digits.data() + std::string(kSuffix);
}

std::optional<uint64_t> copy_number(std::string_view name) {
  if (name.size() != kDigits + kSuffix.size() || !name.ends_with(kSuffix)) return std::nullopt;
  const std::string_view digits = name.substr(0, kDigits);
  if (digits.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  return to_number(digits);
}

void write_copy(const ReplicaDirectory& directory, uint64_t number, const ReplicaManifest& manifest,
                std::string_view database) {
  ReplicaFile file(directory, ReplicaPart::state, copy_name(number));
  packs::Compressor frame(kLevel, 1, [&](std::string_view bytes) { file.write(bytes); });
  const std::string text = write_manifest_text(manifest);
  std::string head(kHead);
  base::append_number(head, uint64_t{text.size()});
  head += text;
  base::append_number(head, uint64_t{database.size()});
  frame.add(head);
  frame.add(database);
  frame.finish();
  file.commit();
}

std::string sha256_of(const base::Fd& file, uint64_t bytes,
                      const std::function<void(std::string_view)>& sink) {
  base::Sha256 digest;
  const packs::ByteSource source = packs::part_of_file(file.get(), 0, bytes);
  for (std::string_view piece = source(); !piece.empty(); piece = source()) {
    digest.add(piece);
    if (sink) sink(piece);
  }
  return base::to_hex(digest.raw());
}

ReplicaManifest read_copy(const base::Fd& file,
                          const std::function<void(std::string_view)>& database) {
  struct stat status {};
  base::check(fstat(file.get(), &status), "check a copy of the database");
  const auto size = static_cast<uint64_t>(status.st_size);
  packs::verify_frame(file.get(), 0, size, kWhat);
  packs::FrameReader reader(packs::part_of_file(file.get(), 0, size), kWhat);
  if (reader.take(kHead.size()) != kHead)
    throw Error(Code::unsupported, "another release wrote this copy of the database",
                "use the release that wrote it");
  const auto manifest = parse_manifest_text(reader.take(read_length(reader, kMaxManifestBytes)));
  reader.pass_on(read_length(reader, kMaxDatabaseBytes), database);
  reader.require_end();
  return manifest;
}

}  // namespace moorage::workspace
