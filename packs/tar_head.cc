#include "packs/tar_head.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/log.h"

namespace moorage::packs {
namespace {

constexpr size_t kNameBytes = 100;
// libarchive accepts no more records before an entry.
constexpr size_t kMaxRecordsBytes = 1 << 20;
constexpr int64_t kMaxOctalTime_s = 077777777777;

struct UstarField {
  size_t offset;
  size_t bytes;
};
constexpr UstarField kName{0, kNameBytes};
constexpr UstarField kMode{100, 8};
constexpr UstarField kUid{108, 8};
constexpr UstarField kGid{116, 8};
constexpr UstarField kSize{124, 12};
constexpr UstarField kTime{136, 12};
constexpr UstarField kChecksum{148, 8};
constexpr UstarField kType{156, 1};
constexpr UstarField kTarget{157, kNameBytes};
constexpr UstarField kMagic{257, 8};

class UstarHeader {
 public:
  void put(const UstarField& field, std::string_view text) {
    std::copy_n(text.begin(), std::min(text.size(), field.bytes), block_.begin() + field.offset);
  }
  void put_number(const UstarField& field, uint64_t number) {
    const size_t digits = field.bytes - 1;
    if (number >> (3 * digits) != 0) return put_binary(field, number);
    std::string text(digits, '0');
    for (size_t at = digits; at > 0; number >>= 3) text[--at] = static_cast<char>('0' + number % 8);
    put(field, text);
  }
  std::string finish() {
    put(kMagic, std::string_view("ustar\00000", 8));
    put(kChecksum, std::string(kChecksum.bytes, ' '));
    uint64_t sum = 0;
    for (const char c : block_) sum += static_cast<unsigned char>(c);
    put_number({kChecksum.offset, 7}, sum);
    block_[kChecksum.offset + 6] = '\0';
    return {block_.begin(), block_.end()};
  }

 private:
  // The GNU form, read by every tar: the first bit, then the number, largest byte first.
  void put_binary(const UstarField& field, uint64_t number) {
    std::string text(field.bytes, '\0');
    for (size_t at = field.bytes; at > 1; number >>= 8) text[--at] = static_cast<char>(number);
    text[0] = static_cast<char>(0x80);
    put(field, text);
  }
  std::array<char, kTarBlockBytes> block_{};
};

// "LENGTH NAME=VALUE\n", where the length counts its own digits.
std::string record(std::string_view name, std::string_view value) {
  const size_t rest = name.size() + value.size() + 3;
  size_t length = rest;
  while (length != rest + std::to_string(length).size()) {
    length = rest + std::to_string(length).size();
  }
  return std::to_string(length) + " " + std::string(name) + "=" + std::string(value) + "\n";
}

std::string url_encoded(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > ' ' && byte < 0x7f && c != '%' && c != '=') {
      encoded += c;
    } else {
      encoded += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return encoded;
}

// Without the '=' at the end, which a reader does not need.
std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  uint32_t buffer = 0;
  int bits = 0;
  for (const char c : bytes) {
    buffer = buffer << 8 | static_cast<unsigned char>(c);
    for (bits += 8; bits >= 6; bits -= 6) text += kDigits[buffer >> (bits - 6) & 63];
  }
  if (bits > 0) text += kDigits[buffer << (6 - bits) & 63];
  return text;
}

std::string time_text(const ArchiveEntry& entry) {
  std::string fraction = std::to_string(1'000'000'000 + entry.mtime.tv_nsec);
  fraction.front() = '.';
  fraction.erase(fraction.find_last_not_of('0') + 1);
  return std::to_string(entry.mtime.tv_sec) + (fraction == "." ? "" : fraction);
}

bool fits(std::string_view text) {
  return text.size() <= kNameBytes && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return c >= ' ' && c < 0x7f;
         });
}

bool is_link(const ArchiveEntry& entry) {
  return entry.type == NodeType::symlink || entry.type == NodeType::hard_link;
}

std::string records_of(const ArchiveEntry& entry) {
  std::string text;
  if (entry.sparse) {
    text += record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0") +
            record("GNU.sparse.name", entry.path) +
            record("GNU.sparse.realsize", std::to_string(entry.size));
  } else if (!fits(entry.path)) {
    text += record("path", entry.path);
  }
  if (is_link(entry) && !fits(entry.target)) text += record("linkpath", entry.target);
  if (entry.mtime.tv_nsec != 0 || entry.mtime.tv_sec < 0 || entry.mtime.tv_sec > kMaxOctalTime_s) {
    text += record("mtime", time_text(entry));
  }
  const auto attribute = [&text](std::string_view name, std::string_view value) {
    text += record("LIBARCHIVE.xattr." + url_encoded(name), base64(value));
  };
  if (entry.type == NodeType::socket) attribute(kTypeMark, kSocketMark);
  if (entry.type == NodeType::whiteout) attribute(kTypeMark, kWhiteoutMark);
  if (entry.opaque) attribute(kOpaqueMark, "y");
  for (const auto& [name, value] : entry.attributes) attribute(name, value);
  // Names are bytes in any locale.
  return text.empty() ? text : record("hdrcharset", "BINARY") + text;
}

// In the order of NodeType. Tar has no type for the last four: sockets and whiteouts are empty
// files with a mark.
constexpr std::string_view kTypeLetters = "052160000";

// At least one piece, and the last one ends at the file's end: GNU tar's form.
std::string sparse_map(const ArchiveEntry& entry) {
  std::vector<Extent> pieces = entry.extents;
  const uint64_t end = pieces.empty() ? 0 : pieces.back().offset + pieces.back().bytes;
  if (pieces.empty() || end < entry.size) pieces.push_back({entry.size, 0});
  std::string map = std::to_string(pieces.size()) + "\n";
  for (const Extent& piece : pieces) {
    map += std::to_string(piece.offset) + "\n" + std::to_string(piece.bytes) + "\n";
  }
  return map + tar_padding(map.size());
}

std::string extended_header(const std::string& records) {
  UstarHeader header;
  header.put(kName, "PaxHeader");
  header.put_number(kMode, 0644);
  header.put_number(kUid, 0);
  header.put_number(kGid, 0);
  header.put_number(kSize, records.size());
  header.put_number(kTime, 0);
  header.put(kType, "x");
  return header.finish() + records + tar_padding(records.size());
}

}  // namespace

std::string tar_padding(uint64_t bytes) {
  return std::string((kTarBlockBytes - bytes % kTarBlockBytes) % kTarBlockBytes, '\0');
}

uint64_t tar_content_bytes(const ArchiveEntry& entry) {
  if (!entry.sparse) return entry.type == NodeType::file ? entry.size : 0;
  uint64_t bytes = 0;
  for (const Extent& extent : entry.extents) bytes += extent.bytes;
  return bytes;
}

std::string tar_head(const ArchiveEntry& entry) {
  const std::string records = records_of(entry);
  if (records.size() > kMaxRecordsBytes) {
    throw Error(Code::unsupported,
                base::escape_for_message(entry.path) +
                    " has more extended attributes than an archive can hold per file (1 MiB)",
                "remove unneeded ones: setfattr -x NAME FILE");
  }
  const std::string map = entry.sparse ? sparse_map(entry) : std::string();
  UstarHeader header;
  // For programs that do not know records; the record has the whole path.
  header.put(kName, entry.path);
  header.put_number(kMode, entry.mode);
  header.put_number(kUid, entry.uid);
  header.put_number(kGid, entry.gid);
  header.put_number(kSize, map.size() + tar_content_bytes(entry));
  header.put_number(
      kTime, static_cast<uint64_t>(std::clamp<int64_t>(entry.mtime.tv_sec, 0, kMaxOctalTime_s)));
  header.put(kType, kTypeLetters.substr(static_cast<size_t>(entry.type), 1));
  if (is_link(entry)) header.put(kTarget, entry.target);
  return (records.empty() ? "" : extended_header(records)) + header.finish() + map;
}

}  // namespace moorage::packs
