# All third-party code comes from Debian 12 packages.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
# libboost*1.81-dev; Boost.Process, Beast and Asio are headers, JSON is a library.
find_package(Boost 1.81 REQUIRED COMPONENTS json filesystem)
find_package(SQLiteCpp REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED)
pkg_check_modules(LIBGIT2 REQUIRED IMPORTED_TARGET libgit2)
pkg_check_modules(LXC REQUIRED IMPORTED_TARGET lxc)
