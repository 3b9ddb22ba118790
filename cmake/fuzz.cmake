# libFuzzer targets: every src/**/x_fuzz.c becomes an executable x_fuzz, built with clang and the sanitizers.
#   CC=clang cmake -B build/fuzz -DSNUG_FUZZ=ON -DSNUG_TESTS=OFF && cmake --build build/fuzz
#   build/fuzz/json_fuzz -max_total_time=30
if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "SNUG_FUZZ needs clang (found ${CMAKE_C_COMPILER_ID})")
endif()
set(FUZZ_SANITIZERS -fsanitize=address,undefined -fno-sanitize-recover=undefined)
set(FUZZ_SOURCES ${ALL_SOURCES})
list(FILTER FUZZ_SOURCES INCLUDE REGEX "_fuzz\\.c$")
target_compile_options(snug_objects PUBLIC -g -O1 ${FUZZ_SANITIZERS} -fsanitize=fuzzer-no-link)
# No target reaches a kernel, and sanitizers make the large ones slow to compile.
set(KERNEL_SOURCES ${LIB_SOURCES})
list(FILTER KERNEL_SOURCES INCLUDE REGEX "^src/ops/")
set_property(SOURCE ${KERNEL_SOURCES} APPEND PROPERTY COMPILE_OPTIONS "-fno-sanitize=all")
foreach(file IN LISTS FUZZ_SOURCES)
  get_filename_component(name ${file} NAME_WE)
  add_executable(${name} ${file})
  target_compile_options(${name} PRIVATE -g -O1 ${FUZZ_SANITIZERS} -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE ${FUZZ_SANITIZERS} -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE snug_static)
endforeach()
