#include "packs/delta_pack.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>

#include "base/error.h"
#include "base/little_endian.h"
#include "packs/frame_reader.h"

namespace moorage::packs {
namespace {

constexpr const char* kWhat = "a pack";
constexpr std::string_view kFoot = "moorage pack 1\n";
constexpr size_t kFootBytes = kFoot.size() + 16;
constexpr size_t kMaxPathBytes = 1 << 20;
constexpr size_t kMaxAttributeBytes = 64 << 10;
constexpr uint32_t kMaxAttributes = 4096;
constexpr size_t kMaxAllAttributesBytes = 4 << 20;  // kMaxFileAttributesBytes of their writers
constexpr size_t kMaxPieceBytes = 4 << 20;

[[noreturn]] void damaged(const std::string& why) {
  throw Error(Code::corrupted, std::string(kWhat) + " is damaged: " + why);
}

void put_text(std::string& out, std::string_view text) {
  base::append_number(out, static_cast<uint32_t>(text.size()));
  out += text;
}

Node read_entry(FrameReader& in) {
  Node entry;
  entry.path = in.text(kMaxPathBytes);
  const auto type = in.number<uint8_t>();
  if (type > static_cast<uint8_t>(NodeType::whiteout)) damaged("an unknown type");
  entry.type = static_cast<NodeType>(type);
  entry.mode = in.number<uint32_t>();
  entry.uid = in.number<uint32_t>();
  entry.gid = in.number<uint32_t>();
  entry.mtime.tv_sec = in.number<int64_t>();
  entry.mtime.tv_nsec = in.number<uint32_t>();
  const auto attributes = in.number<uint32_t>();
  if (attributes > kMaxAttributes || entry.mtime.tv_nsec >= 1'000'000'000)
    damaged("an invalid number");
  size_t bytes = 0;
  for (uint32_t i = 0; i < attributes; ++i) {
    std::string name = in.text(kMaxAttributeBytes);
    std::string value = in.text(kMaxAttributeBytes);
    bytes += name.size() + value.size();
    if (bytes > kMaxAllAttributesBytes) damaged("too many attributes");
    entry.attributes[std::move(name)] = std::move(value);
  }
  entry.target = in.text(kMaxPathBytes);
  entry.size = in.number<uint64_t>();
  return entry;
}

void read_pieces(FrameReader& in, PackVisitor& visitor) {
  for (;;) {
    auto offset = in.number<uint64_t>();
    const auto length = in.number<uint32_t>();
    if (length == 0) return visitor.end_pieces();
    if (length > kMaxPieceBytes || offset > INT64_MAX - kMaxPieceBytes) damaged("an invalid piece");
    // Not put together first: most of a pack's bytes come this way.
    in.pass_on(length, [&](std::string_view part) {
      visitor.piece(offset, part);
      offset += part.size();
    });
  }
}

void read_all_changes(FrameReader& in, PackVisitor& visitor) {
  for (;;) {
    switch (in.take(1).front()) {
      case 'e': {
        const Node entry = read_entry(in);
        visitor.entry(entry);
        if (entry.type == NodeType::file) read_pieces(in, visitor);
        break;
      }
      case 'a':
        visitor.growth(in.text(kMaxPathBytes));
        read_pieces(in, visitor);
        break;
      case 'r':
        visitor.removal(in.text(kMaxPathBytes));
        break;
      case 'z':
        return in.require_end();
      default:
        damaged("an unknown change");
    }
  }
}

std::string foot_of(uint64_t changes_bytes, uint64_t list_bytes) {
  std::string foot(kFoot);
  base::append_number(foot, changes_bytes);
  base::append_number(foot, list_bytes);
  return foot;
}

}  // namespace

bool is_replicated_attribute(std::string_view name) {
  constexpr std::array<std::string_view, 6> kNames{
      "trusted.overlay.opaque", "trusted.overlay.redirect", "trusted.overlay.whiteout",
      "security.capability",    "system.posix_acl_access",  "system.posix_acl_default"};
  return name.starts_with("user.") || std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

PackWriter::PackWriter(Sink sink, PackCompression compression)
    : sink_(std::move(sink)),
      compression_(compression),
      changes_(std::make_unique<Compressor>(compression.level, compression.threads,
                                            [this](std::string_view bytes) {
                                              changes_bytes_ += bytes.size();
                                              sink_(bytes);
                                            })) {}

void PackWriter::put(std::string_view bytes) {
  assert(changes_);
  changes_->add(bytes);
}

void PackWriter::end_changes() {
  put("z");
  changes_->finish();
  changes_.reset();
  listing_ = std::make_unique<Compressor>(compression_.level, 1, [this](std::string_view bytes) {
    list_bytes_ += bytes.size();
    sink_(bytes);
  });
}

void PackWriter::entry(const Node& entry) {
  std::string out = "e";
  put_text(out, entry.path);
  base::append_number(out, static_cast<uint8_t>(entry.type));
  base::append_number(out, entry.mode);
  base::append_number(out, entry.uid);
  base::append_number(out, entry.gid);
  base::append_number(out, int64_t{entry.mtime.tv_sec});
  base::append_number(out, static_cast<uint32_t>(entry.mtime.tv_nsec));
  base::append_number(out, static_cast<uint32_t>(entry.attributes.size()));
  for (const auto& [name, value] : entry.attributes) {
    put_text(out, name);
    put_text(out, value);
  }
  put_text(out, entry.target);
  base::append_number(out, entry.size);
  put(out);
}

void PackWriter::put_path(std::string letter, const std::string& path) {
  put_text(letter, path);
  put(letter);
}

void PackWriter::piece(uint64_t offset, std::string_view bytes) {
  std::string head;
  base::append_number(head, offset);
  base::append_number(head, static_cast<uint32_t>(bytes.size()));
  put(head);
  put(bytes);
}

void PackWriter::list(std::string_view text) {
  if (!listing_) end_changes();
  listing_->add(text);
}

void PackWriter::finish() {
  if (!listing_) end_changes();
  listing_->finish();
  sink_(foot_of(changes_bytes_, list_bytes_));
}

PackReader::PackReader(Fd file) : file_(std::move(file)) {
  struct stat status {};
  base::check(fstat(file_.get(), &status), "inspect a pack");
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size < kFootBytes) damaged("it is too short");
  const std::string foot = base::read_at(file_.get(), kFootBytes, size - kFootBytes);
  if (foot.size() != kFootBytes || !foot.starts_with(kFoot)) damaged("its trailer is missing");
  changes_bytes_ = base::number_at<uint64_t>(foot.data() + kFoot.size());
  list_bytes_ = base::number_at<uint64_t>(foot.data() + kFoot.size() + 8);
  if (changes_bytes_ > size || list_bytes_ > size ||
      changes_bytes_ + list_bytes_ + kFootBytes != size) {
    damaged("the sizes in its trailer do not match the file");
  }
}

uint64_t PackReader::bytes() const { return changes_bytes_ + list_bytes_ + kFootBytes; }

void PackReader::verify(const std::function<void()>& check_stopping) const {
  verify_frame(file_.get(), 0, changes_bytes_, kWhat, check_stopping);
  verify_frame(file_.get(), changes_bytes_, list_bytes_, kWhat, check_stopping);
}

void PackReader::read_changes(PackVisitor& visitor) const {
  FrameReader in(part_of_file(file_.get(), 0, changes_bytes_), kWhat);
  read_all_changes(in, visitor);
}

void PackReader::read_list(const std::function<void(std::string_view)>& sink) const {
  Decompressor frame(part_of_file(file_.get(), changes_bytes_, list_bytes_));
  for (std::string_view piece = frame.next(); !piece.empty(); piece = frame.next()) sink(piece);
}

void read_pack_stream(ByteSource source, PackVisitor& visitor) {
  FrameReader in(std::move(source), kWhat);
  in.expect_more();
  read_all_changes(in, visitor);
  const uint64_t changes_bytes = in.frame_bytes();
  in.start_next();
  in.require_end();  // the list is empty
  if (in.raw(kFootBytes + 1) != foot_of(changes_bytes, in.frame_bytes()))
    damaged("its trailer does not match it");
}

std::string PackName::str() const {
  return series + "." + std::to_string(number) + (whole ? ".whole" : ".more");
}

std::optional<PackName> parse_pack_name(std::string_view name) {
  PackName pack;
  const size_t first = name.find('.');
  const size_t last = name.rfind('.');
  if (first == std::string_view::npos || first == last || first == 0) return std::nullopt;
  pack.series = name.substr(0, first);
  const std::string_view number = name.substr(first + 1, last - first - 1);
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), pack.number);
  if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
  pack.whole = name.substr(last) == ".whole";
  return name == pack.str() ? std::optional(std::move(pack)) : std::nullopt;
}

}  // namespace moorage::packs
