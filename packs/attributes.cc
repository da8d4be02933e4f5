#include "packs/attributes.h"

#include <linux/capability.h>
#include <linux/limits.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <linux/xattr.h>

#include <optional>

#include "base/error.h"
#include "base/little_endian.h"
#include "base/os/xattr.h"
#include "layers/ids.h"

namespace moorage::packs {
namespace {

constexpr std::string_view kUserPrefix = "user.";
constexpr std::string_view kCapability = "security.capability";
constexpr std::string_view kAccess = "system.posix_acl_access";
constexpr std::string_view kDefault = "system.posix_acl_default";

// Both formats use little endian words (linux/capability.h, linux/posix_acl_xattr.h).
uint32_t word_at(const std::string& bytes, size_t at) {
  return base::number_at<uint32_t>(bytes.data() + at);
}

// Moves an id from [from, from + 65536) to [to, ...). False: outside that range.
bool move_id(std::string& bytes, size_t at, uint32_t from, uint32_t to) {
  const uint32_t id = word_at(bytes, at);
  if (id < from || id - from >= layers::kIdsPerSandbox) return false;
  base::put_number(bytes.data() + at, id - from + to);
  return true;
}

// Only version 3 names the user namespace whose root gave the capability. Any other version would
// be valid on the host.
bool move_capability(std::string& value, uint32_t from, uint32_t to) {
  constexpr size_t kRootAt = sizeof(vfs_ns_cap_data) - sizeof(uint32_t);
  return value.size() == sizeof(vfs_ns_cap_data) &&
         (word_at(value, 0) & VFS_CAP_REVISION_MASK) == VFS_CAP_REVISION_3 &&
         move_id(value, kRootAt, from, to);
}

bool move_access_list(std::string& value, uint32_t from, uint32_t to) {
  constexpr size_t kHead = sizeof(posix_acl_xattr_header);
  constexpr size_t kEntry = sizeof(posix_acl_xattr_entry);
  if (value.size() < kHead || (value.size() - kHead) % kEntry != 0) return false;
  if (word_at(value, 0) != POSIX_ACL_XATTR_VERSION) return false;
  for (size_t at = kHead; at < value.size(); at += kEntry) {
    const uint32_t tag = word_at(value, at) & 0xffff;
    if (tag != ACL_USER && tag != ACL_GROUP) continue;
    if (!move_id(value, at + offsetof(posix_acl_xattr_entry, e_id), from, to)) return false;
  }
  return true;
}

bool is_kept(std::string_view name) {
  return name.starts_with(kUserPrefix) || name == kCapability || name == kAccess ||
         name == kDefault;
}

bool move_ids(std::string_view name, std::string& value, uint32_t from, uint32_t to) {
  if (name == kCapability) return move_capability(value, from, to);
  if (name == kAccess || name == kDefault) return move_access_list(value, from, to);
  return true;
}

std::string value_on_disk(const std::string& name, std::string value, uint32_t disk_first_id,
                          const std::string& what) {
  if (is_kept(name) && name.size() <= XATTR_NAME_MAX && value.size() <= XATTR_SIZE_MAX &&
      move_ids(name, value, 0, disk_first_id)) {
    return value;
  }
  throw Error(Code::invalid_argument, what + " has an attribute that no sandbox can set",
              "moorage did not write this archive");
}

}  // namespace

Attributes read_attributes(int fd, uint32_t disk_first_id) {
  Attributes attributes;
  size_t bytes = 0;
  for (const std::string& name : base::attribute_names(fd)) {
    if (bytes > kMaxFileAttributesBytes) break;
    if (!is_kept(name)) continue;
    std::optional<std::string> value = base::read_attribute(fd, name);
    bytes += name.size() + (value ? value->size() : 0);
    // A host capability or an id outside the sandbox means nothing inside, so skip it.
    if (value && move_ids(name, *value, disk_first_id, 0)) attributes[name] = *std::move(value);
  }
  return attributes;
}

void check_attributes(const Attributes& attributes, uint32_t disk_first_id,
                      const std::string& what) {
  for (const auto& [name, stored] : attributes) value_on_disk(name, stored, disk_first_id, what);
}

void write_attributes(int fd, const Attributes& attributes, uint32_t disk_first_id,
                      const std::string& what) {
  for (const auto& [name, stored] : attributes)
    base::write_attribute(fd, name, value_on_disk(name, stored, disk_first_id, what));
}

}  // namespace moorage::packs
