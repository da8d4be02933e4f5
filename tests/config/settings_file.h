// Settings as the text of a file, loaded or refused.
#pragma once

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "base/error.h"
#include "base/os/files.h"
#include "config/load.h"

namespace moorage::config {

// A settings file that lives as long as the object.
class SettingsFile {
 public:
  explicit SettingsFile(const std::string& text) {
    const char* base = getenv("TMPDIR");
    directory_ = std::string(base ? base : "/tmp") + "/moorage-config-XXXXXX";
    base::check(mkdtemp(directory_.data()) ? 0 : -1, directory_);
    base::write_file(path(), text);
  }
  ~SettingsFile() { base::remove_tree(directory_); }
  SettingsFile(const SettingsFile&) = delete;
  SettingsFile& operator=(const SettingsFile&) = delete;
  std::string path() const { return directory_ + "/moorage.yaml"; }

 private:
  std::string directory_;
};

inline Loaded load_text(const std::string& text,
                        const std::map<std::string, std::string>& environment = {}) {
  const SettingsFile file(text);
  return load({.file = file.path(), .environment = environment});
}

// The error, from ":LINE:COLUMN" on, with the hint after " | ".
inline std::string refusal(const std::string& text,
                           const std::map<std::string, std::string>& environment = {}) {
  const SettingsFile file(text);
  try {
    load({.file = file.path(), .environment = environment});
  } catch (const base::Error& error) {
    CHECK(error.code() == base::Code::invalid_argument);
    std::string message = error.message();
    if (message.starts_with(file.path())) message = message.substr(file.path().size());
    return message + (error.hint().empty() ? "" : " | " + error.hint());
  }
  FAIL("accepted: " << text);
  return {};
}

}  // namespace moorage::config
