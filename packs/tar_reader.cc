#include "packs/tar_reader.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "base/parts.h"

namespace moorage::packs {
namespace {

constexpr size_t kDigestBytes = 32;
constexpr uint32_t kMaxId = 65535;
constexpr size_t kMaxPathBytes = 64 << 10;
constexpr size_t kMaxNameBytes = 255;
constexpr size_t kMaxLineBytes = 512 << 10;
constexpr uint64_t kMaxPaddingBytes = 1 << 20;

std::string shown(const std::string& path) { return base::escape_for_message(path); }

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(Code::invalid_argument, "entry " + shown(path) + " " + why,
              "moorage did not write this archive");
}

void check_path(const std::string& path) {
  if (path.size() > kMaxPathBytes) refuse(path.substr(0, 100) + "...", "has too long a path");
  for (const std::string_view name : base::split(path, '/')) {
    if (name.empty() || name == "." || name == ".." || name.size() > kMaxNameBytes)
      refuse(path, "has a path that is not allowed");
  }
}

constexpr std::array<std::pair<mode_t, NodeType>, 4> kPlainTypes{{{AE_IFREG, NodeType::file},
                                                                  {AE_IFDIR, NodeType::directory},
                                                                  {AE_IFLNK, NodeType::symlink},
                                                                  {AE_IFIFO, NodeType::fifo}}};

void read_attributes(archive_entry* item, ArchiveEntry& entry) {
  archive_entry_xattr_reset(item);
  const char* name = nullptr;
  const void* value = nullptr;
  size_t size = 0;
  while (archive_entry_xattr_next(item, &name, &value, &size) == ARCHIVE_OK) {
    const std::string text(static_cast<const char*>(value), size);
    if (name == kTypeMark) {
      if (entry.type != NodeType::file || entry.size != 0) refuse(entry.path, "has a false type");
      if (text != kSocketMark && text != kWhiteoutMark) refuse(entry.path, "has an unknown type");
      entry.type = text == kSocketMark ? NodeType::socket : NodeType::whiteout;
    } else if (name == kOpaqueMark) {
      if (entry.type != NodeType::directory) refuse(entry.path, "has a false type");
      entry.opaque = true;
    } else if (!entry.attributes.emplace(name, text).second) {
      refuse(entry.path, "has a duplicate attribute");
    }
  }
}

void read_type(archive_entry* item, ArchiveEntry& entry) {
  if (const char* link = archive_entry_hardlink(item)) {
    entry.type = NodeType::hard_link;
    entry.target = link;
    check_path(entry.target);
    return;
  }
  const mode_t wanted = archive_entry_filetype(item);
  const auto* const plain =
      std::find_if(kPlainTypes.begin(), kPlainTypes.end(),
                   [wanted](const auto& known) { return known.first == wanted; });
  if (plain == kPlainTypes.end()) refuse(entry.path, "is a device or has an unknown type");
  entry.type = plain->second;
  if (entry.type == NodeType::file) entry.size = static_cast<uint64_t>(archive_entry_size(item));
  if (entry.type == NodeType::symlink) {
    const char* target = archive_entry_symlink(item);
    if (!target || !*target) refuse(entry.path, "is a link without a target");
    entry.target = target;
  }
}

uint32_t read_id(la_int64_t id, const std::string& path) {
  if (id < 0 || id > kMaxId) refuse(path, "has an owner id beyond 65535");
  return static_cast<uint32_t>(id);
}

ArchiveEntry translate(archive_entry* item) {
  ArchiveEntry entry;
  const char* path = archive_entry_pathname(item);
  if (!path) refuse("without a path", "cannot be read");
  entry.path = path;
  const bool directory = archive_entry_filetype(item) == AE_IFDIR;
  if (directory && entry.path.ends_with('/')) entry.path.pop_back();
  check_path(entry.path);
  if (archive_entry_size(item) < 0) refuse(entry.path, "has a negative size");
  read_type(item, entry);
  entry.mode = archive_entry_perm(item) & 07777;
  entry.uid = read_id(archive_entry_uid(item), entry.path);
  entry.gid = read_id(archive_entry_gid(item), entry.path);
  entry.mtime = {archive_entry_mtime(item), archive_entry_mtime_nsec(item)};
  if (archive_entry_acl_types(item) != 0) refuse(entry.path, "has an unsupported access list");
  read_attributes(item, entry);
  return entry;
}

}  // namespace

std::string ArchiveReader::place() const {
  if (in_entry_) return "at " + shown(entry_.path);
  return entry_.path.empty() ? "at its start" : "after " + shown(entry_.path);
}

void ArchiveReader::fail() {
  if (failure_) {
    try {
      std::rethrow_exception(std::exchange(failure_, nullptr));
    } catch (const Error& error) {
      if (error.code() != Code::corrupted) throw;
      throw Error(Code::corrupted, "the archive is damaged " + place() + ": " + error.message());
    }
  }
  const char* text = archive_error_string(tar_.get());
  throw Error(Code::corrupted, "the archive is damaged " + place() + ": " +
                                   base::escape_for_message(text ? text : "not a tar file"));
}

ssize_t ArchiveReader::give(archive* tar, void* self, const void** bytes) {
  auto* reader = static_cast<ArchiveReader*>(self);
  try {
    const std::string_view piece = reader->decompressor_.next();
    reader->step_bytes_ += piece.size();
    reader->bytes_ += piece.size();
    if (reader->step_bytes_ > reader->limits_.max_step_bytes ||
        reader->bytes_ > reader->limits_.max_bytes) {
      throw Error(Code::resource_exhausted,
                  "the archive exceeds its size limit " + reader->place());
    }
    if (reader->limits_.check && reader->bytes_ >= reader->next_check_) {
      reader->limits_.check();
      reader->next_check_ = reader->bytes_ + reader->limits_.check_bytes;
    }
    *bytes = piece.data();
    return static_cast<ssize_t>(piece.size());
  } catch (...) {  // C code must not see exceptions
    reader->failure_ = std::current_exception();
    archive_set_error(tar, EIO, "reading the archive failed");
    return -1;
  }
}

ArchiveReader::ArchiveReader(ByteSource source, const ReadLimits& limits)
    : limits_(limits),
      decompressor_(std::move(source)),
      tar_(archive_read_new(), archive_read_free) {
  if (archive_read_support_format_tar(tar_.get()) != ARCHIVE_OK ||
      archive_read_open2(tar_.get(), this, nullptr, give, nullptr, nullptr) != ARCHIVE_OK) {
    fail();
  }
}

const ArchiveEntry* ArchiveReader::next() {
  if (done_) return nullptr;
  finish_entry();
  step_bytes_ = 0;
  archive_entry* item = nullptr;
  const int answer = archive_read_next_header(tar_.get(), &item);
  if (answer == ARCHIVE_EOF) {
    throw Error(Code::corrupted, "the archive is damaged: it ends without its index, " + place());
  }
  if (answer != ARCHIVE_OK) fail();
  entry_ = translate(item);
  in_entry_ = true;
  digest_.begin(entry_);
  if (entry_.path == kIndexPath) {
    verify_index();
    return nullptr;
  }
  if (++facts_.entries > limits_.max_entries) {
    throw Error(Code::resource_exhausted,
                "the archive has more than " + std::to_string(limits_.max_entries) + " entries");
  }
  return &entry_;
}

bool ArchiveReader::read(Piece& piece) {
  if (!in_entry_ || entry_.type != NodeType::file) return false;
  for (;;) {
    step_bytes_ = 0;
    const void* bytes = nullptr;
    size_t size = 0;
    la_int64_t offset = 0;
    const int answer = archive_read_data_block(tar_.get(), &bytes, &size, &offset);
    if (answer == ARCHIVE_EOF) return false;
    if (answer != ARCHIVE_OK) fail();
    if (size == 0) continue;
    piece = {static_cast<uint64_t>(offset), {static_cast<const char*>(bytes), size}};
    if (offset < 0 || piece.offset > entry_.size || size > entry_.size - piece.offset) {
      refuse(entry_.path, "has data beyond its size");
    }
    digest_.add(piece.offset, piece.bytes);
    return true;
  }
}

std::string ArchiveReader::read_all(uint64_t max_bytes) {
  if (entry_.size > max_bytes) {
    throw Error(Code::resource_exhausted, "entry " + shown(entry_.path) + " is larger than " +
                                              std::to_string(max_bytes) + " bytes");
  }
  std::string text;
  for (Piece piece; read(piece);) {
    if (piece.offset != text.size()) refuse(entry_.path, "must not be sparse");
    text += piece.bytes;
  }
  return text;
}

void ArchiveReader::finish_entry() {
  if (!in_entry_) return;
  for (Piece rest; read(rest);) {
  }
  const std::string digest = digest_.raw();
  digests_ += digest;
  all_.add(digest);
  in_entry_ = false;
}

// Compares the entries that we read with the index that the writer made.
void ArchiveReader::verify_index() {
  uint64_t line_number = 0;
  const auto check_line = [&](std::string_view line) {
    std::string path = "line " + std::to_string(line_number + 1) + " of the index";
    std::string digest;
    try {
      const auto object = boost::json::parse({line.data(), line.size()}).as_object();
      path = object.at("path").as_string().c_str();
      digest = object.at("sha256").as_string().c_str();
    } catch (const std::exception&) {
      throw Error(Code::corrupted, "the archive is damaged: " + path + " cannot be read");
    }
    const bool known = line_number < facts_.entries;
    const auto at = static_cast<size_t>(line_number++) * kDigestBytes;
    if (known && digest == base::to_hex(std::string_view(digests_).substr(at, kDigestBytes))) {
      return;
    }
    throw Error(Code::corrupted, "the archive is damaged: " + base::escape_for_message(path) +
                                     " differs from what was written");
  };
  std::string rest;
  uint64_t expected = 0;
  for (Piece piece; read(piece);) {
    if (piece.offset != expected) refuse(std::string(kIndexPath), "must not be sparse");
    expected += piece.bytes.size();
    rest += piece.bytes;
    size_t begin = 0;
    for (size_t end = 0; (end = rest.find('\n', begin)) != std::string::npos; begin = end + 1) {
      check_line(std::string_view(rest).substr(begin, end - begin));
    }
    rest.erase(0, begin);
    if (rest.size() > kMaxLineBytes) refuse(std::string(kIndexPath), "has a line that is too long");
  }
  if (!rest.empty() || line_number != facts_.entries) {
    throw Error(Code::corrupted, "the archive is damaged: its index lists " +
                                     std::to_string(line_number) + " entries, found " +
                                     std::to_string(facts_.entries));
  }
  in_entry_ = false;
  step_bytes_ = 0;
  archive_entry* item = nullptr;
  const int answer = archive_read_next_header(tar_.get(), &item);
  if (answer == ARCHIVE_OK) refuse(std::string(kIndexPath), "is not the last entry");
  if (answer != ARCHIVE_EOF) fail();
  try {
    uint64_t padding = 0;
    for (std::string_view left; !(left = decompressor_.next()).empty();) {
      padding += left.size();
      if (padding > kMaxPaddingBytes || left.find_first_not_of('\0') != std::string_view::npos) {
        throw Error(Code::corrupted, "there is data after its end");
      }
    }
  } catch (Error& error) {
    throw error.add_context("the archive is damaged after its index");
  }
  facts_.stream = decompressor_.facts();
  facts_.digest = base::to_hex(all_.raw());
  done_ = true;
}

}  // namespace moorage::packs
