// One pack of the replica: the changes to a tree since the previous pack. Two zstd frames with a
// SHA-256 each (zstd_frame.h) and a foot: first the changes, in the order to apply them, then the
// list of what the follower had recorded (workspace/replica/tree_follower.h), so that the next
// daemon continues from there. A pack is untrusted until it is verified, and its paths and sizes
// even then: they are bounded here and checked again where they are used.
//
// A change is a letter and its fields, little endian, each text after its length:
//   e  path, type, mode, uid, gid, mtime s, ns, attributes; for a link its target; for a file its
//      size, then pieces (offset, text), the last one empty
//   a  path, pieces: an append-only file
//   r  path: removed, with everything below
//   z  the end
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/os/fd.h"
#include "layers/node.h"
#include "packs/zstd_frame.h"

namespace moorage::packs {

using layers::Node;  // ids and attributes as on the disk
using layers::NodeType;

struct PackCompression {
  int level = 1;  // fast enough for every round and for git packs
  unsigned threads = 1;
};

class PackWriter {
 public:
  using Sink = std::function<void(std::string_view)>;  // may throw
  explicit PackWriter(Sink sink, PackCompression compression = {});
  PackWriter(PackWriter&&) = delete;

  void entry(const Node& entry);  // a file is followed by pieces and end_pieces()
  void growth(const std::string& path) { put_path("a", path); }  // the same
  void piece(uint64_t offset, std::string_view bytes);
  void end_pieces() { piece(0, {}); }
  void removal(const std::string& path) { put_path("r", path); }
  void list(std::string_view text);  // a part of the list; no changes may follow
  void finish();

 private:
  void put(std::string_view bytes);
  void put_path(std::string letter, const std::string& path);
  void end_changes();
  Sink sink_;
  const PackCompression compression_;
  uint64_t changes_bytes_ = 0;  // compressed
  uint64_t list_bytes_ = 0;
  std::unique_ptr<Compressor> changes_;
  std::unique_ptr<Compressor> listing_;  // after the last change
};

class PackVisitor {
 public:
  virtual ~PackVisitor() = default;
  virtual void entry(const Node& entry) = 0;
  virtual void growth(const std::string& path) = 0;
  virtual void piece(uint64_t offset, std::string_view bytes) = 0;
  virtual void end_pieces() = 0;
  virtual void removal(const std::string& path) = 0;
};

class PackReader {
 public:
  explicit PackReader(Fd file);  // corrupted: not a pack
  // Reads all of it; throws corrupted if it differs from the written one.
  void verify(const std::function<void()>& check_stopping = {}) const;
  void read_changes(PackVisitor& visitor) const;
  void read_list(const std::function<void(std::string_view)>& sink) const;
  uint64_t bytes() const;  // of the file

 private:
  Fd file_;
  uint64_t changes_bytes_ = 0;
  uint64_t list_bytes_ = 0;
};

// Reads a pack with an empty list as it arrives; `source` must end with the pack. The digests are
// checked at their ends only, so the visitor sees data that may be damaged or hostile.
void read_pack_stream(ByteSource source, PackVisitor& visitor);

// "ly_5.12.whole" and "ly_5.13.more".
struct PackName {
  std::string series;
  uint64_t number = 0;
  bool whole = false;
  std::string str() const;
};
std::optional<PackName> parse_pack_name(std::string_view name);

// Attributes copied with a file. Of overlay's marks, those that mean something on another disk: not
// a file's origin, nor marks that only make overlay faster.
bool is_replicated_attribute(std::string_view name);

}  // namespace moorage::packs
