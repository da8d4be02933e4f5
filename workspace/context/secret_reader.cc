#include "workspace/context/secret_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/net/certificates.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/os/process.h"
#include "workspace/context/account.h"
#include "workspace/context/credentials.h"

namespace moorage::workspace {
namespace {

using base::Code;
using base::Error;
using base::Fd;
using state_db::SecretSource;

constexpr int64_t kKeyDays = 36'500;
constexpr size_t kMaxReason = 200;  // bytes of a command's own words
constexpr size_t kMaxSecret = 64 << 10;
constexpr uint64_t kMaxFile = 256 << 20;  // of those that its command writes

std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  text.erase(0, text.rfind('\n') + 1);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = ' ';
  }
  return text.substr(0, kMaxReason);
}

}  // namespace

std::string SecretReader::key_path() const {
  if (const char* given = std::getenv("CREDENTIALS_DIRECTORY")) {  // systemd.exec(5)
    const std::string path = std::string(given) + "/moorage-credentials.key";
    if (base::path_exists(path)) return path;
  }
  return options_.credential_key;
}

std::string SecretReader::certificate() const {
  const std::string path = key_path();
  if (!base::path_exists(path)) {
    base::make_directories(std::filesystem::path(path).parent_path());
    const auto made = base::Issuer::self_signed({.name = "credentials", .days = kKeyDays});
    base::write_file_durable(path, made.certificate + made.key);
  }
  return base::Issuer(base::read_file(path)).certificate();
}

void SecretReader::write(const state_db::CredentialRow& row, int fd, Words words) const {
  const auto trouble = [&row](const std::string& what, const std::string& hint = "") {
    return Error(Code::unavailable, "the credential " + row.name + ": " + what,
                 hint.empty() ? "moorage credential test " + row.name : hint);
  };
  base::ProcessOptions options;
  options.deadline = kDeadline;
  options.output_fd = fd;
  options.max_file_bytes = kMaxFile;
  options.environment = {{"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
                         {"LANG", "C.UTF-8"}};
  std::vector<std::string> argv;
  Fd sealed;
  if (row.source == SecretSource::sealed) {
    const std::string path = sealed_path(options_.store, row.place);
    if (!base::path_exists(path)) {
      throw trouble("its encrypted secret is not in this store (a replica has none)",
                    "add it again: moorage credential add " + row.name + " ... --from-stdin");
    }
    if (!base::path_exists(key_path())) {
      throw trouble("the key that its secret was encrypted for is gone: " + key_path(),
                    "put the key back, or add the credential again");
    }
    sealed = base::open_file(path, O_RDONLY);
    options.input_fd = sealed.get();
    argv = base::unseal_command(key_path());
  } else {
    const Account account = account_of(row.owner_uid);
    options.environment.merge(std::map<std::string, std::string>{{"HOME", account.home},
                                                                 {"USER", account.name},
                                                                 {"LOGNAME", account.name},
                                                                 {"SHELL", account.shell}});
    argv = account.run_as();
    if (row.source == SecretSource::command)
      argv.insert(argv.end(), {"/bin/sh", "-c", row.place});
    else
      argv.insert(argv.end(), {"/bin/cat", "--", row.place});
  }
  base::ProcessResult result;
  try {
    result = base::run_process(argv, options);
  } catch (const Error& error) {
    throw trouble(error.message());
  }
  if (result.ok()) return;
  const std::string how = result.signal != 0
                              ? "was ended by signal " + std::to_string(result.signal)
                              : "failed with exit code " + std::to_string(result.exit_code);
  if (row.source == SecretSource::sealed) {
    throw trouble("it cannot be decrypted with " + key_path() +
                  ": it was encrypted for another key, or is damaged; add it again");
  }
  const std::string said = words == Words::shown ? last_line(result.error) : "";
  const char* what = row.source == SecretSource::command ? "its command " : "its reader ";
  throw trouble(what + how + (said.empty() ? "" : ": " + said));
}

base::LinkKey SecretReader::link_key(const state_db::CredentialRow& row) const {
  using Source = base::LinkKey::Source;
  switch (row.source) {
    case SecretSource::command:
      return {.source = Source::command, .place = row.place, .credential = row.name};
    case SecretSource::file:
      return {.source = Source::file, .place = row.place, .credential = row.name};
    case SecretSource::sealed:
      break;
  }
  return {.source = Source::sealed,
          .place = sealed_path(options_.store, row.place),
          .recipient = key_path(),
          .credential = row.name};
}

Fd SecretReader::read(const state_db::CredentialRow& row, Words words) const {
  Fd memory(base::check(memfd_create("secret", MFD_CLOEXEC), "create a file in memory"));
  write(row, memory.get(), words);
  struct stat found {};
  base::check(fstat(memory.get(), &found), "measure a file");
  if (found.st_size == 0 || static_cast<size_t>(found.st_size) > kMaxSecret) {
    throw Error(Code::invalid_argument,
                "the credential " + row.name +
                    (found.st_size == 0 ? ": it is empty" : ": it is longer than 64 KiB"),
                "check the command or file that has it");
  }
  base::check(lseek(memory.get(), 0, SEEK_SET), "rewind a file");
  return memory;
}

}  // namespace moorage::workspace
