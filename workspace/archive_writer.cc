#include "workspace/archive_writer.h"

#include <archive.h>
#include <archive_entry.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/json.hpp>
#include <climits>
#include <exception>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "workspace/archive_marks.h"

namespace moorage::workspace {
namespace {

using base::Code;
using base::Error;

constexpr size_t kPieceBytes = 256 << 10;
constexpr size_t kIndexBufferBytes = 1 << 20;
// libarchive is told of holes by being given their bytes, which it then does not touch
// (archive_write_pax_data). So they lie in memory that is never there.
constexpr size_t kHoleBytes = 1UL << 36;

struct HoleMemory {
  void* start =
      mmap(nullptr, kHoleBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  HoleMemory() {
    if (start == MAP_FAILED) base::throw_errno("reserve addresses for holes");
  }
  ~HoleMemory() { munmap(start, kHoleBytes); }
  HoleMemory(const HoleMemory&) = delete;
  HoleMemory& operator=(const HoleMemory&) = delete;
};

mode_t type_bits(EntryType type) {
  switch (type) {
    case EntryType::directory:
      return AE_IFDIR;
    case EntryType::symlink:
      return AE_IFLNK;
    case EntryType::fifo:
      return AE_IFIFO;
    case EntryType::file:
    case EntryType::hard_link:
    case EntryType::socket:    // these two as empty files with a mark:
    case EntryType::whiteout:  // tar has no word for them
      break;
  }
  return AE_IFREG;
}

}  // namespace

struct ArchiveWriter::State {
  State(WriterOptions options, ByteSink sink)
      : index(std::move(options.index)),
        compressor(options.level, options.threads, std::move(sink)) {}

  [[noreturn]] void fail(const std::string& what) {
    if (failure) std::rethrow_exception(failure);
    throw Error(Code::io, what + ": " + base::escape_for_message(archive_error_string(tar.get())));
  }
  void check(int answer, const std::string& path) {
    if (answer != ARCHIVE_OK) fail("write " + base::escape_for_message(path) + " into the archive");
  }
  static la_ssize_t take(archive* tar, void* self, const void* bytes, size_t size) {
    auto* state = static_cast<State*>(self);
    try {
      state->compressor.add({static_cast<const char*>(bytes), size});
      return static_cast<la_ssize_t>(size);
    } catch (...) {  // not through C
      state->failure = std::current_exception();
      archive_set_error(tar, EIO, "the sink failed");
      return -1;
    }
  }

  base::Fd index;
  std::string index_buffer;
  uint64_t index_bytes = 0;
  Compressor compressor;
  std::exception_ptr failure;
  std::unique_ptr<archive, int (*)(archive*)> tar{archive_write_new(), archive_write_free};
  std::unique_ptr<archive_entry, void (*)(archive_entry*)> item{archive_entry_new(),
                                                                archive_entry_free};
  HoleMemory hole;
  ArchiveEntry entry;  // that data() and end() are about
  uint64_t position = 0;
  EntryDigest digest;
  base::Sha256 all;
  uint64_t entries = 0;
};

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

ArchiveWriter::ArchiveWriter(WriterOptions options, ByteSink sink)
    : state_(std::make_unique<State>(std::move(options), std::move(sink))) {
  archive* tar = state_->tar.get();
  state_->check(archive_write_set_format_pax(tar), "the format");
  // Names are bytes, whatever the locale; and an attribute's name may hold a '='.
  state_->check(archive_write_set_format_option(tar, "pax", "hdrcharset", "BINARY"), "the format");
  state_->check(archive_write_set_format_option(tar, "pax", "xattrheader", "LIBARCHIVE"),
                "the format");
  state_->check(archive_write_set_bytes_per_block(tar, kPieceBytes), "the format");
  state_->check(archive_write_set_bytes_in_last_block(tar, 1), "the format");
  state_->check(archive_write_open2(tar, state_.get(), nullptr, State::take, nullptr, nullptr),
                "the head");
}

ArchiveWriter::~ArchiveWriter() {
  // Else closing would write an end behind what is cut.
  archive_write_fail(state_->tar.get());
}

void ArchiveWriter::begin(const ArchiveEntry& entry) {
  archive_entry* item = archive_entry_clear(state_->item.get());
  archive_entry_copy_pathname(item, entry.path.c_str());
  archive_entry_set_mode(item, type_bits(entry.type) | entry.mode);
  archive_entry_set_uid(item, entry.uid);
  archive_entry_set_gid(item, entry.gid);
  archive_entry_set_mtime(item, entry.mtime_s, entry.mtime_ns);
  archive_entry_set_size(item, static_cast<la_int64_t>(entry.size));
  if (entry.type == EntryType::symlink) archive_entry_copy_symlink(item, entry.target.c_str());
  if (entry.type == EntryType::hard_link) archive_entry_copy_hardlink(item, entry.target.c_str());
  const auto mark = [item](std::string_view name, std::string_view value) {
    archive_entry_xattr_add_entry(item, std::string(name).c_str(), value.data(), value.size());
  };
  if (entry.type == EntryType::socket) mark(kTypeMark, kSocketMark);
  if (entry.type == EntryType::whiteout) mark(kTypeMark, kWhiteoutMark);
  if (entry.opaque) mark(kOpaqueMark, "y");
  for (const auto& [name, value] : entry.attributes) mark(name, value);
  for (const Extent& extent : entry.extents) {
    archive_entry_sparse_add_entry(item, static_cast<la_int64_t>(extent.offset),
                                   static_cast<la_int64_t>(extent.bytes));
  }
  if (entry.sparse && entry.extents.empty()) archive_entry_sparse_add_entry(item, 0, 0);
  state_->check(archive_write_header(state_->tar.get(), item), entry.path);
  state_->entry = entry;
  state_->position = 0;
  state_->digest.begin(entry);
  if (entry.type != EntryType::file) end();
}

void ArchiveWriter::fill_hole(uint64_t to) {
  while (state_->position < to) {
    const size_t size = std::min<uint64_t>({to - state_->position, kHoleBytes, INT_MAX});
    const la_ssize_t taken = archive_write_data(state_->tar.get(), state_->hole.start, size);
    if (taken <= 0) state_->fail("write a hole of " + state_->entry.path);
    state_->position += static_cast<uint64_t>(taken);
  }
}

void ArchiveWriter::data(uint64_t offset, std::string_view bytes) {
  State& state = *state_;
  if (offset < state.position || offset + bytes.size() > state.entry.size ||
      (offset > state.position && !state.entry.sparse)) {
    throw Error(Code::conflict, state.entry.path + " changed while it was being archived");
  }
  fill_hole(offset);
  state.digest.add(offset, bytes);
  while (!bytes.empty()) {
    const la_ssize_t taken = archive_write_data(state.tar.get(), bytes.data(), bytes.size());
    if (taken <= 0) state.fail("write " + base::escape_for_message(state.entry.path));
    bytes.remove_prefix(static_cast<size_t>(taken));
    state.position += static_cast<uint64_t>(taken);
  }
}

void ArchiveWriter::end() {
  State& state = *state_;
  if (state.entry.type == EntryType::file) {
    if (state.entry.sparse) fill_hole(state.entry.size);
    if (state.position != state.entry.size) {
      throw Error(Code::conflict, base::escape_for_message(state.entry.path) +
                                      " became shorter while it was being archived");
    }
  }
  state.check(archive_write_finish_entry(state.tar.get()), state.entry.path);
  const std::string digest = state.digest.raw();
  state.all.add(digest);
  ++state.entries;
  if (state.entry.path != kIndexPath) write_index_line(state.entry, digest);
}

void ArchiveWriter::write_index_line(const ArchiveEntry& entry, const std::string& digest) {
  boost::json::object line;
  // JSON is UTF-8: a name that is not goes as it is escaped for people, who are all that reads it.
  line["path"] = base::escape_for_message(entry.path);
  line["size"] = entry.type == EntryType::file ? entry.size : 0;
  line["sha256"] = base::to_hex(digest);
  std::string& buffer = state_->index_buffer;
  buffer += boost::json::serialize(line) + "\n";
  if (buffer.size() < kIndexBufferBytes) return;
  base::write_all(state_->index.get(), buffer);
  state_->index_bytes += buffer.size();
  buffer.clear();
}

void ArchiveWriter::put(const std::string& path, std::string_view bytes) {
  ArchiveEntry entry;
  entry.path = path;
  entry.size = bytes.size();
  begin(entry);
  data(0, bytes);
  end();
}

void ArchiveWriter::put_file(const std::string& path, int fd, uint64_t size) {
  ArchiveEntry entry;
  entry.path = path;
  entry.size = size;
  begin(entry);
  for (uint64_t offset = 0; offset < size;) {
    const std::string piece =
        base::read_at(fd, std::min<uint64_t>(kPieceBytes, size - offset), offset);
    if (piece.empty()) break;  // end() says it
    data(offset, piece);
    offset += piece.size();
  }
  end();
}

ArchiveFacts ArchiveWriter::finish() {
  State& state = *state_;
  base::write_all(state.index.get(), state.index_buffer);
  state.index_bytes += state.index_buffer.size();
  ArchiveFacts facts;
  facts.entries = state.entries;
  facts.digest = base::to_hex(state.all.raw());
  put_file(std::string(kIndexPath), state.index.get(), state.index_bytes);
  state.check(archive_write_close(state.tar.get()), "the end");
  if (state.failure) std::rethrow_exception(state.failure);
  facts.stream = state.compressor.finish();
  return facts;
}

}  // namespace moorage::workspace
