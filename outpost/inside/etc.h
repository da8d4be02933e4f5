// What a sandbox sees of the machine's /etc: the files that programs need to run, and no settings
// of this machine; users, names and shells are ours.
#pragma once

#include <string>
#include <vector>

namespace moorage::outpost {

struct TextFile {
  const char* path;  // below the root, without the first slash
  const char* content;
};
const std::vector<TextFile>& text_files();

// Names below /etc, files or directories, that are shown from the machine where they exist.
const std::vector<const char*>& shown_etc();

}  // namespace moorage::outpost
