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

struct ArchiveWriter::State {
  State(WriterOptions options, ByteSink sink)
      : unnamed_file(std::move(options.unnamed_file)),
        index(unnamed_file()),
        compressor(options.level, options.threads, std::move(sink)) {}

  std::function<Fd()> unnamed_file;
  Fd index;
  std::string index_buffer;
  uint64_t index_bytes = 0;
  Compressor compressor;
  ArchiveEntry entry;            // current entry of data() and end()
  std::vector<Extent> expected;  // ranges of its content still to come
  bool in_file = false;          // begun but not ended
  EntryDigest digest;
  base::Sha256 all;
  uint64_t entries = 0;
};

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

ArchiveWriter::ArchiveWriter(WriterOptions options, ByteSink sink)
    : state_(std::make_unique<State>(std::move(options), std::move(sink))) {}

ArchiveWriter::~ArchiveWriter() = default;

void ArchiveWriter::begin(const ArchiveEntry& entry) {
  State& state = *state_;
  state.compressor.add(tar_head(entry));
  state.entry = entry;
  state.expected = entry.extents;
  if (!entry.sparse && entry.size > 0) state.expected = {{0, entry.size}};
  std::reverse(state.expected.begin(), state.expected.end());
  state.digest.begin(entry);
  state.in_file = entry.type == NodeType::file;
  if (!state.in_file) end();
}

void ArchiveWriter::data(uint64_t offset, std::string_view bytes) {
  State& state = *state_;
  if (bytes.empty()) return;
  if (state.expected.empty() || state.expected.back().offset != offset ||
      state.expected.back().bytes < bytes.size()) {
    throw Error(Code::conflict, base::escape_for_message(state.entry.path) +
                                    " changed while it was being archived");
  }
  state.digest.add(offset, bytes);
  state.compressor.add(bytes);
  Extent& piece = state.expected.back();
  piece.offset += bytes.size();
  piece.bytes -= bytes.size();
  if (piece.bytes == 0) state.expected.pop_back();
}

void ArchiveWriter::fill() {
  State& state = *state_;
  if (!state.in_file) return;
  const std::string zeros(kPieceBytes, '\0');
  while (!state.expected.empty()) {
    const Extent next = state.expected.back();
    data(next.offset, std::string_view(zeros).substr(0, next.bytes));
  }
  end();
}

void ArchiveWriter::end() {
  State& state = *state_;
  if (state.in_file && !state.expected.empty()) {
    throw Error(Code::conflict, base::escape_for_message(state.entry.path) +
                                    " became shorter while it was being archived");
  }
  state.in_file = false;
  state.compressor.add(tar_padding(tar_content_bytes(state.entry)));
  const std::string digest = state.digest.raw();
  state.all.add(digest);
  ++state.entries;
  if (state.entry.path != kIndexPath) write_index_line(state.entry, digest);
}

void ArchiveWriter::write_index_line(const ArchiveEntry& entry, const std::string& digest) {
  boost::json::object line;
  // JSON is UTF-8: other names are escaped as in messages; only people read them.
  line["path"] = base::escape_for_message(entry.path);
  line["size"] = entry.type == NodeType::file ? entry.size : 0;
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
    if (piece.empty()) break;  // end() reports it
    data(offset, piece);
    offset += piece.size();
  }
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
    for (uint64_t done = part.bytes.size(); done < part.size;) {
      const std::string piece =
          base::read_at(fd, std::min<uint64_t>(kPieceBytes, part.size - done), part.offset + done);
      if (piece.empty()) break;  // end() reports it
      data(at + done, piece);
      done += piece.size();
    }
    at += part.size;
  }
  end();
}

Fd ArchiveWriter::unnamed_file() const { return state_->unnamed_file(); }

ArchiveFacts ArchiveWriter::finish() {
  State& state = *state_;
  base::write_all(state.index.get(), state.index_buffer);
  state.index_bytes += state.index_buffer.size();
  ArchiveFacts facts;
  facts.entries = state.entries;
  facts.digest = base::to_hex(state.all.raw());
  put_file(std::string(kIndexPath), state.index.get(), state.index_bytes);
  state.compressor.add(tar_end());
  facts.stream = state.compressor.finish();
  return facts;
}

}  // namespace moorage::packs
