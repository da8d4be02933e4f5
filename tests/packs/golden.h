// Golden files: what a release wrote, and a text with a line for each node that it restores to.
#pragma once

#include <cstdio>
#include <map>
#include <string>

#include "layers/tree_manifest.h"

namespace moorage::packs {

// Bytes that a text file or a JSON string cannot show become %XX.
inline std::string printable(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    char code[4];
    snprintf(code, sizeof code, "%%%02X", static_cast<unsigned char>(byte));
    const bool plain = byte >= ' ' && byte <= '~' && byte != '%' && byte != '"' && byte != '\\';
    text += plain ? std::string(1, byte) : code;
  }
  return text;
}

// The nodes of a tree, with their paths below `name`.
inline std::map<std::string, std::string> golden_nodes(const std::string& name,
                                                       const std::string& top) {
  std::map<std::string, std::string> nodes;
  for (const auto& [path, line] : layers::TreeManifest(top, {.data_ranges = false}).lines)
    nodes[printable(name + path.substr(1))] = printable(line);
  return nodes;
}

// A JSON object of strings, one on each line.
inline std::string golden_text(const std::map<std::string, std::string>& nodes) {
  std::string text = "{";
  for (const auto& [path, line] : nodes)
    text += (text == "{" ? "\n\"" : ",\n\"") + path + "\": \"" + line + "\"";
  return text + "\n}\n";
}

}  // namespace moorage::packs
