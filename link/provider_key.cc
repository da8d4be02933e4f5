#include "link/provider_key.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"

namespace moorage::link {
namespace {

constexpr size_t kMaxKeyBytes = 16 << 10;

}  // namespace

std::string read_provider_key(const std::string& key_file) {
  if (key_file.empty()) return {};
  const auto refuse = [&key_file](const std::string& why, const std::string& hint) {
    throw Error(Code::permission_denied, "cannot use the key in " + key_file + ": " + why, hint);
  };
  // Non-blocking: the open of a pipe would wait for its writer.
  const base::Fd file = base::open_file(key_file, O_RDONLY | O_NONBLOCK);
  struct stat info;
  base::check(fstat(file.get(), &info), "read the mode of " + key_file);
  if (!S_ISREG(info.st_mode))
    refuse("it is not a regular file", "put the provider's API key there, on one line");
  if (info.st_uid != 0 || (info.st_mode & 077) != 0) {
    refuse("others than root may read the file",
           "chown root " + key_file + "; chmod 600 " + key_file);
  }
  std::string key = base::read_up_to(file.get(), kMaxKeyBytes);
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r' || key.back() == ' '))
    key.pop_back();
  if (key.empty()) refuse("the file is empty", "put the provider's API key there, on one line");
  return key;
}

}  // namespace moorage::link
