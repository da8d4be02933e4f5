// Gets the secret of a credential where it is kept, and passes it on through a descriptor: it never
// enters the daemon's memory.
#pragma once

#include <chrono>
#include <string>

#include "base/os/fd.h"
#include "base/wire/link_config.h"
#include "state_db/tables/credentials.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

class SecretReader {
 public:
  explicit SecretReader(const Options& options) : options_(options) {}

  // A command that fails may have printed the secret: its words are for its owner, neither for a
  // sandbox nor for a log.
  enum class Words { kept_back, shown };
  // Writes it to `fd`. Throws with the reason: its command failed or took too long, the file cannot
  // be read by its owner.
  void write(const state_db::CredentialRow& row, int fd, Words words = Words::kept_back) const;
  // A file in memory that has it, at its beginning. Throws as above, and if it is empty.
  Fd read(const state_db::CredentialRow& row, Words words = Words::kept_back) const;
  // Reads it once and forgets it. Throws with the command's words.
  void test(const state_db::CredentialRow& row) const { read(row, Words::shown); }
  // For moorage-link, which reads the secret itself. `row` is one of root's.
  base::LinkKey link_key(const state_db::CredentialRow& row) const;
  // PEM. Secrets from standard input are encrypted for it. The key is made if there is none.
  std::string certificate() const;

  static constexpr std::chrono::milliseconds kDeadline{15'000};

 private:
  std::string key_path() const;

  const Options& options_;
};

}  // namespace moorage::workspace
