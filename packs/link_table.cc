#include "packs/link_table.h"

#include <unistd.h>

#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/little_endian.h"
#include "base/os/files.h"

namespace moorage::packs {
namespace {

constexpr uint64_t kFirstSlots = 1 << 12;

// Inode numbers come in sequences; the product spreads them over the table.
uint64_t spread(uint64_t device, uint64_t inode) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;
  const uint64_t product = (inode ^ device << 32) * kOdd;
  return product ^ product >> 29;
}

std::string read_all_at(const Fd& file, size_t size, uint64_t offset) {
  std::string bytes = base::read_at(file.get(), size, offset);
  if (bytes.size() == size) return bytes;
  throw Error(Code::internal, "a temporary file is too short");
}

}  // namespace

std::optional<std::string> LinkTable::first_path(const Inode& inode, const std::string& path) {
  if (2 * used_ >= slot_count_) grow();
  const uint64_t number = find(inode);
  const Slot slot = read_slot(number);
  if (slot.place != 0) return path_at(slot.place - 1);
  write_slot(number, {inode.first, inode.second, keep(path) + 1});
  ++used_;
  return std::nullopt;
}

void LinkTable::grow() {
  if (!paths_) paths_ = make_file_();
  Fd old = std::exchange(slots_, make_file_());
  const uint64_t old_count =
      std::exchange(slot_count_, slot_count_ ? 4 * slot_count_ : kFirstSlots);
  base::check(ftruncate(slots_.get(), static_cast<off_t>(slot_count_ * sizeof(Slot))),
              "extend a temporary file");
  for (uint64_t first = 0; first < old_count; first += kFirstSlots) {
    const std::string piece = read_all_at(old, kFirstSlots * sizeof(Slot), first * sizeof(Slot));
    for (size_t at = 0; at < piece.size(); at += sizeof(Slot)) {
      Slot slot;
      std::memcpy(&slot, piece.data() + at, sizeof slot);
      if (slot.place != 0) write_slot(find({slot.device, slot.inode}), slot);
    }
  }
}

LinkTable::Slot LinkTable::read_slot(uint64_t number) const {
  const std::string bytes = read_all_at(slots_, sizeof(Slot), number * sizeof(Slot));
  Slot slot;
  std::memcpy(&slot, bytes.data(), sizeof slot);
  return slot;
}

void LinkTable::write_slot(uint64_t number, const Slot& slot) {
  const std::string_view bytes(reinterpret_cast<const char*>(&slot), sizeof slot);
  base::write_at(slots_.get(), bytes, number * sizeof slot);
}

uint64_t LinkTable::find(const Inode& inode) const {
  for (uint64_t number = spread(inode.first, inode.second);; ++number) {
    number &= slot_count_ - 1;
    const Slot slot = read_slot(number);
    if (slot.place == 0 || Inode{slot.device, slot.inode} == inode) return number;
  }
}

std::string LinkTable::path_at(uint64_t place) const {
  const std::string head = read_all_at(paths_, sizeof(uint32_t), place);
  return read_all_at(paths_, base::number_at<uint32_t>(head.data()), place + head.size());
}

uint64_t LinkTable::keep(const std::string& path) {
  std::string record;
  base::append_number(record, static_cast<uint32_t>(path.size()));
  record += path;
  base::write_at(paths_.get(), record, paths_bytes_);
  return std::exchange(paths_bytes_, paths_bytes_ + record.size());
}

}  // namespace moorage::packs
