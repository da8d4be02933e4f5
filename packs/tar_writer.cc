#include "packs/tar_writer.h"

#include <algorithm>
#include <boost/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/wire/journal_middle.h"
#include "packs/tar_head.h"

namespace moorage::packs {
namespace {

constexpr size_t kPieceBytes = 256 << 10;
constexpr size_t kIndexBufferBytes = 1 << 20;

}  // namespace

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

void ArchiveWriter::begin(const ArchiveEntry& entry) {
  compressor_.add(tar_head(entry));
  entry_ = entry;
  expected_ = entry.extents;
  if (!entry.sparse && entry.size > 0) expected_ = {{0, entry.size}};
  std::reverse(expected_.begin(), expected_.end());
  digest_.begin(entry);
  in_file_ = entry.type == NodeType::file;
  if (!in_file_) end();
}

void ArchiveWriter::data(uint64_t offset, std::string_view bytes) {
  if (bytes.empty()) return;
  if (expected_.empty() || expected_.back().offset != offset ||
      expected_.back().bytes < bytes.size()) {
    throw Error(Code::conflict,
                base::escape_for_message(entry_.path) + " changed while it was being archived");
  }
  digest_.add(offset, bytes);
  compressor_.add(bytes);
  Extent& piece = expected_.back();
  piece.offset += bytes.size();
  piece.bytes -= bytes.size();
  if (piece.bytes == 0) expected_.pop_back();
}

void ArchiveWriter::data_from(int fd, const Extent& part, uint64_t offset) {
  for (uint64_t done = 0; done < part.bytes;) {
    const std::string piece =
        base::read_at(fd, std::min<uint64_t>(kPieceBytes, part.bytes - done), part.offset + done);
    if (piece.empty()) return;
    data(offset + done, piece);
    done += piece.size();
  }
}

void ArchiveWriter::fill() {
  if (!in_file_) return;
  const std::string zeros(kPieceBytes, '\0');
  while (!expected_.empty()) {
    const Extent next = expected_.back();
    data(next.offset, std::string_view(zeros).substr(0, next.bytes));
  }
  end();
}

void ArchiveWriter::end() {
  if (in_file_ && !expected_.empty()) {
    throw Error(Code::conflict, base::escape_for_message(entry_.path) +
                                    " became shorter while it was being archived");
  }
  in_file_ = false;
  compressor_.add(tar_padding(tar_content_bytes(entry_)));
  const std::string digest = digest_.raw();
  all_.add(digest);
  ++entries_;
  if (entry_.path != kIndexPath) write_index_line(digest);
}

void ArchiveWriter::write_index_line(const std::string& digest) {
  boost::json::object line;
  // JSON is UTF-8: other names are escaped as in messages; only people read them.
  line["path"] = base::escape_for_message(entry_.path);
  line["size"] = entry_.type == NodeType::file ? entry_.size : 0;
  line["sha256"] = base::to_hex(digest);
  index_buffer_ += boost::json::serialize(line) + "\n";
  if (index_buffer_.size() >= kIndexBufferBytes) write_index();
}

void ArchiveWriter::write_index() {
  base::write_all(index_.get(), index_buffer_);
  index_bytes_ += index_buffer_.size();
  index_buffer_.clear();
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
  data_from(fd, {0, size}, 0);
  end();
}

void ArchiveWriter::put_journal(const std::string& path, int fd) {
  const auto parts = base::compact_journal(fd);
  ArchiveEntry entry;
  entry.path = path;
  for (const base::CompactPart& part : parts) entry.size += part.size;
  begin(entry);
  uint64_t at = 0;
  for (const base::CompactPart& part : parts) {
    if (!part.bytes.empty()) data(at, part.bytes);
    const uint64_t done = part.bytes.size();
    if (done < part.size) data_from(fd, {part.offset + done, part.size - done}, at + done);
    at += part.size;
  }
  end();
}

ArchiveFacts ArchiveWriter::finish() {
  write_index();
  ArchiveFacts facts;
  facts.entries = entries_;
  facts.digest = base::to_hex(all_.raw());
  put_file(std::string(kIndexPath), index_.get(), index_bytes_);
  compressor_.add(std::string(2 * kTarBlockBytes, '\0'));
  facts.stream = compressor_.finish();
  return facts;
}

}  // namespace moorage::packs
